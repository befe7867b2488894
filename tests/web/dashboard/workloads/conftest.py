"""The pages of the workloads with users of each role: OCI Control of a test, orders of a module."""

import pytest

from tests.web.conftest import MakeWorld, World
from tests.web.dashboard.workloads.control_page import ControlPage


@pytest.fixture
def control(make_world: MakeWorld) -> ControlPage:
    return ControlPage(make_world(secret_keys="first:" + "A" * 43))


@pytest.fixture(scope="module")
def shop(shared_world: World) -> World:
    shared_world.person("ayse", "admin", all_sites=True)
    shared_world.person("can", "operator", all_sites=True)
    shared_world.person("ece", "viewer", all_sites=True)
    return shared_world
