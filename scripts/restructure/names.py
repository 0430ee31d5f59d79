"""Symbols of the second layout. A scope is a list of path prefixes (after the moves); none is everywhere."""

PAPERS = ("src/benign/spec", "src/benign/papers", "src/benign/cli", "src/benign/report")
SWEEP = ("src/benign/experiment.py", "src/benign/sweep", "tests/sweep", "tests/test_experiment.py")
RUNNING = (
    *SWEEP,
    "src/benign/cli",
    "src/benign/papers/verify.py",
    "tests/faults",
    "tests/cli",
    "tests/report",
)
RUNNING = (
    *RUNNING,
    "src/benign/claims/replays.py",
    "src/benign/report",
    "src/benign/papers/requests.py",
)

NAMES: dict[str, tuple[str, tuple[str, ...]]] = {
    "Crew": ("Executor", ()),
    "Manner": ("ExecutionConfig", ()),
    "Here": ("SerialExecutor", ()),
    "Processes": ("ProcessExecutor", ()),
    "Taken": ("Lease", ()),
    "taken_in": ("leases_in", ()),
    "Standing": ("SweepStatus", ()),
    "Ground": ("PerturbationSpace", ()),
    "Products": ("GramSpace", ()),
    "Worst": ("BestSoFar", ()),
    "Strong": ("EnsembleAttack", ()),
    "Carried": ("GramState", ()),
    "Fresh": (
        "TestPoints",
        ("src/benign/reduction", "src/benign/training", "tests/reduction", "tests/training"),
    ),
    "Held": ("JointTestPoints", ()),
    "OneByOne": ("PerPointTestPoints", ()),
    "Counting": ("RunResolver", ()),
    "Choices": ("RunOptions", ()),
    "Plan": ("RunRequest", ()),
    "complain": ("print_error", ()),
    "say": ("echo", ()),
    "carry_out": ("run_requests", ()),
    "perform": ("run_request", ()),
    "sound_records": ("valid_records", ()),
    "glance": ("read_header", ()),
    "looked_at": ("read_once", ()),
    "Keeping": ("CheckpointConfig", ()),
    "Kept": ("NamedTensors", ()),
    "Along": (
        "UnitProgress",
        ("src/benign/sweep", "src/benign/report", "tests/sweep", "tests/report"),
    ),
    "Ways": ("UnitsInProgress", ()),
    "At": (
        "UnitPosition",
        ("src/benign/sweep", "src/benign/report", "tests/sweep", "tests/report"),
    ),
    "take_over": ("steal", ()),
    "TakeOver": ("Steal", ()),
    "Again": ("Recompute", ()),
    "grown": ("extend_history", SWEEP),
    "agreed": ("merge_history", ("src/benign/sweep", "tests/sweep")),
    "extends": ("is_superset", ("src/benign/sweep", "tests/sweep")),
    "climb": ("ascend", ()),
    "rise": ("ascent_direction", ("src/benign/attacks", "tests/attacks")),
    "offer": ("update", ("src/benign/attacks", "tests/attacks")),
    "rounds": ("batches_per_epoch", ()),
    "become": ("copy_", ()),
    "settle": ("flush", ()),
    "rooms": ("papers", (*PAPERS, "tests/spec", "tests/papers", "tests/cli")),
    "again": ("recompute", RUNNING),
    "look_after": ("check_timeouts", ()),
}
# Options of the command line and what goes with them, in every text.
TEXT: dict[str, str] = {
    "--with": "--plugin",
    "--again": "--recompute",
    "--take-over": "--steal",
    "--found": "--no-run",
    "BENIGN_WITH": "BENIGN_PLUGINS",
    "again=True": "recompute=True",
}
