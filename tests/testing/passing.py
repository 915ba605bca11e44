"""Every attention of the library by name, with settings that take different ways through its code."""

PASSING = {
    "full": dict(name="full"),
    "random, one key a query": dict(name="random_mask", mask_density=0.03),
    "random, empty": dict(name="random_mask", mask_density=0.0),
    "random, window": dict(name="random_mask", window=2),
    "sbm": dict(name="sbm", n_clusters=3),
    "recommended": dict(name="sbm", n_clusters=3, preset="recommended"),
    "faithful": dict(name="sbm", n_clusters=1, preset="faithful"),
    "fitted": dict(name="sbm", n_clusters=64, preset="fitted"),
    "fitted, random only of many": dict(name="sbm", n_clusters=4, preset="fitted"),
    "poisson, dropout, pyg": dict(name="sbm", n_clusters=3, link="poisson", dropout=0.2, backend="pyg"),
    "weight rule, dense": dict(name="sbm", n_clusters=3, gate_rule="weight", backend="dense", sampler="bernoulli"),
    "by position": dict(name="sbm_static", n_clusters=3, n_positions=7),
    "linear": dict(name="linear"),
    "linformer": dict(name="linformer", n_positions=7, n_projected=3),
    "reformer": dict(name="reformer"),
    "performer": dict(name="performer", n_features=5),
    "nystromformer": dict(name="nystromformer"),
    "nystromformer, two landmarks": dict(name="nystromformer", n_landmarks=2),
}
