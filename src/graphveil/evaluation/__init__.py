"""How good a model is and what it took: scores, intervals, peak memory."""
