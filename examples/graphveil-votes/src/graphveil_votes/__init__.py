"""Noisy votes of neighbours, as a method of graphveil. Importing this loads no PyTorch: only using the method does."""

from graphveil.methods import Method

METHOD = Method("votes", "graphveil_votes.votes:Votes", "graphveil_votes.plan:spend")
