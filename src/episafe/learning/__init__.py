"""How a learner estimates and plans: regression on visited next states, the composite softmax, the search on λ."""
