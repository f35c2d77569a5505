import pytest_asyncio
import pytest
from support import Editor, World


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


@pytest_asyncio.fixture
async def editor(world):
    editor = Editor(world)
    yield editor
    if editor.client.capabilities and editor.client._server.returncode is None:
        await editor.stop()
