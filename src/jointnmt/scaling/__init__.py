"""Single-shot gradient-based scaling: from three trainings to a larger model (Li et al. 2020, Eqs. 7-11).

A model has a depth of l layers and a width w = F / E. It is trained unchanged, with epsilon more layers, and with
epsilon * E more hidden features: the runs `base`, `depth` and `width`. The differences of their validation
cross-entropies are a gradient; one step along it, up to the target number of parameters, gives the scaled model.

E is not changed, as in the paper. All depths of a model (PreNet and grid, encoder and decoder) grow by the same number
of layers.
"""
