"""How good a model is and what it took: scores, calibration, intervals, peak memory."""
