"""The progress of imports."""

import importlib
import sys


def bar(name, wanted):
    """A bar of tqdm. None if it is not wanted, or if `wanted` is None and it cannot be shown."""
    is_shown = "ipykernel" in sys.modules or sys.stderr.isatty() if wanted is None else wanted
    if not is_shown:
        return None
    try:
        tqdm = importlib.import_module("tqdm.auto").tqdm
    except ImportError as error:
        if wanted is None:
            return None
        raise ImportError("progress=True needs the package tqdm: pip install tqdm") from error
    # A short import needs no bar, unless it is asked for.
    return tqdm(desc=name, unit=" rows", unit_scale=True, delay=0 if wanted else 1)
