"""setuptools' build backend, with the lab's page built first, so that wheels and sdists carry it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403  (every other hook stays as it is)

sys.path.insert(0, str(Path(__file__).parent))
import build as web_build  # noqa: E402


def _node() -> list[str]:
    return [web_build.NODE_PACKAGE] if web_build.stale() and web_build.find_node() is None else []


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """What setuptools needs, and node where the page must be built and there is none."""
    return build_meta.get_requires_for_build_wheel(config_settings) + _node()


def get_requires_for_build_sdist(config_settings: Any = None) -> list[str]:
    """As for a wheel."""
    return build_meta.get_requires_for_build_sdist(config_settings) + _node()


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """The wheel, with the page in it."""
    web_build.page()
    return build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    """The sdist, with the built page in it: a build from it needs no node."""
    web_build.page()
    return build_meta.build_sdist(sdist_directory, config_settings)
