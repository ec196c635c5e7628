"""Files that are complete or not there, locks, safe decoding, checksummed JSON, journals."""
