"""Every attention by name, and what it may be built with."""

from hypothesis import strategies as st

from sbmt import ExtraKeys, available_backends

LONGEST = 70  # positions of the attentions that have a table of them
BACKENDS = st.sampled_from(["auto", *available_backends()])
WINDOWS = st.sampled_from([None, 0, 1, 2, 10**9])
DROPOUT = st.sampled_from([0.0, 0.99, 0.2])
EXPLORATION = st.sampled_from([0.01, 0.0, 0.999999, 0.5]) | st.sampled_from(
    [ExtraKeys(1), ExtraKeys(1e-9), ExtraKeys(1e9)]
)
COUNT = st.sampled_from([1, 2, 3, 9])
SBM = {
    "n_clusters": COUNT,
    "sampler": st.sampled_from(["exact", "bernoulli", "fastrg"]),
    "gate_rule": st.sampled_from(["score", "weight"]),
    "exploration": EXPLORATION,
    "is_diagonal": st.booleans(),
    "window": WINDOWS,
    "self_loops": st.booleans(),
    "dropout": DROPOUT,
    "backend": BACKENDS,
}
LAWS = st.sampled_from([{}, {"link": "poisson"}, {"link": "poisson", "membership": "softmax"}])
SETTINGS = {
    "sbm": st.builds(lambda law, rest: law | rest, LAWS, st.fixed_dictionaries({}, optional=SBM)),
    "sbm_static": st.builds(
        lambda law, rest: law | rest, LAWS, st.fixed_dictionaries({"n_positions": st.just(LONGEST)}, optional=SBM)
    ),
    "full": st.fixed_dictionaries({"dropout": DROPOUT}),
    "linear": st.fixed_dictionaries({"dropout": DROPOUT}),
    "linformer": st.fixed_dictionaries({"n_positions": st.just(LONGEST), "n_projected": COUNT, "dropout": DROPOUT}),
    "reformer": st.fixed_dictionaries({"n_chunk": COUNT, "n_hashes": COUNT, "dropout": DROPOUT}),
    "performer": st.fixed_dictionaries({"n_features": COUNT, "dropout": DROPOUT}),
    "nystromformer": st.fixed_dictionaries(
        {"n_landmarks": COUNT, "n_iterations": st.sampled_from([6, 1, 20]), "dropout": DROPOUT},
        optional={"n_conv": st.sampled_from([1, 3])},
    ),
    "random_mask": st.fixed_dictionaries(
        {"mask_density": st.sampled_from([0.25, 0.0, 1.0, 1e-30, 0.01]), "dropout": DROPOUT, "backend": BACKENDS},
        optional={"window": WINDOWS},
    ),
}
"""What each takes besides sizes."""
