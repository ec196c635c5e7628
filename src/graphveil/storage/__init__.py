"""Files that are complete or not there: atomic writing, locks, checksummed JSON, journals, safe decoding."""
