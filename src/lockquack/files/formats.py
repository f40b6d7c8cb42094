"""NetCDF files and Zarr stores: reading and writing datasets, and trees of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeVar

import xarray as xr

from lockquack.errors import LockquackError
from lockquack.files.places import written_whole
from lockquack.files.unfailing import unfailing
from lockquack.parallel.cluster import active_client

#: Attribute by which a file is known to hold a combination, of whichever version.
FORMAT_KEY = "lockquack_format"

T = TypeVar("T", xr.Dataset, xr.DataTree)
Engine = Literal["zarr", "h5netcdf", "scipy"]


def read_tree(path: str | Path) -> xr.DataTree:
    """Read a NetCDF file or Zarr store with groups."""
    return _read(xr.open_datatree, _existing(path))


def open_tree(path: str | Path) -> xr.DataTree:
    """Open a NetCDF file or Zarr store with groups, without reading the numbers in it."""
    path = _existing(path)
    with _explaining(path):
        return xr.open_datatree(path, cache=False, **_reader(path, flat=False))


def read_dataset(path: str | Path) -> xr.Dataset:
    """Read a NetCDF file or Zarr store without groups."""
    return _read(xr.open_dataset, _existing(path))


def is_combination(attrs: Mapping[Any, Any]) -> bool:
    """Whether a file with these attributes holds a combination, of this version or another."""
    return FORMAT_KEY in attrs


def _existing(path: str | Path) -> Path:
    if not isinstance(path, str | PathLike):
        raise LockquackError(f"The path of a file is a string or a Path; got {path!r}.")
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"There is no file {path}.")
    return path


def _read(opener: Callable[..., T], path: Path) -> T:
    with (
        _explaining(path),
        opener(path, **_reader(path, flat=opener is xr.open_dataset)) as opened,
    ):
        return opened.load()


def _reader(path: Path, *, flat: bool) -> dict[str, Any]:
    engine = _engine(path, flat=flat)
    # Stores with and without consolidated metadata are read alike, and neither is remarked on.
    return {"engine": engine, **({"consolidated": False} if engine == "zarr" else {})}


@contextmanager
def _explaining(path: Path) -> Iterator[None]:
    """Say what is wrong with a file that cannot be read."""
    try:
        yield
    except (OSError, TypeError, ValueError, KeyError) as error:
        if find_spec("h5netcdf") is None and not path.is_dir():
            raise ImportError(
                f"{path} needs h5netcdf, if it is a NetCDF file: pip install 'lockquack[netcdf]'."
            ) from error
        unreadable = LockquackError(
            "This is not a NetCDF file or Zarr store that can be read "
            f"({type(error).__name__}: {error})."
        )
        raise unreadable.within(str(path)) from error


def write(data: xr.Dataset | xr.DataTree, path: str | Path, *, zarr: bool = False) -> None:
    """Write to NetCDF, or to Zarr if the path ends in ``.zarr`` or it is asked for."""
    path = Path(path)
    engine = _engine(path, flat=isinstance(data, xr.Dataset), zarr=zarr)
    with written_whole(path) as unfinished:
        if engine == "zarr":
            # The third format has no settled specification of strings yet.
            data.to_zarr(unfinished, mode="w-", zarr_format=2)
        elif isinstance(data, xr.Dataset) and engine == "scipy":
            unfinished.write_bytes(data.to_netcdf(engine="scipy"))
        elif active_client() is not None:
            data.to_netcdf(unfinished, engine="h5netcdf")  # by workers, who open it themselves
        else:
            with unfailing(unfinished) as file:
                data.to_netcdf(file, engine="h5netcdf")


@contextmanager
def zarr_store(path: str | Path) -> Iterator[Path]:
    """Yield where to write a Zarr store that takes the place of another once it is whole."""
    _installed("zarr", "zarr", Path(path))
    with written_whole(path) as unfinished:
        yield unfinished


def _engine(path: Path, *, flat: bool, zarr: bool = False) -> Engine:
    """Choose what reads and writes a path; scipy is always there, but knows no groups."""
    if zarr or path.suffix == ".zarr" or path.is_dir():
        return _installed("zarr", "zarr", path)
    if flat and find_spec("h5netcdf") is None:
        return "scipy"
    return _installed("h5netcdf", "netcdf", path)


def _installed(engine: Engine, extra: str, path: Path) -> Engine:
    if find_spec(engine) is None:
        raise ImportError(f"{path} needs {engine}: pip install 'lockquack[{extra}]'.")
    return engine
