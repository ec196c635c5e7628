"""What is protected and by how much noise: values and formulas, no data and no random numbers.

Levels say what may change, sensitivities how far a query moves, plans list mechanisms with their noise, certificates
say what was spent. `accounting` turns mechanisms into epsilon and delta.
"""
