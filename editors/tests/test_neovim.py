"""A second real client: Neovim without a window, where it is installed. It is told what an author does."""

import json
import shutil
import subprocess

import pytest
from support import SEGUE
from test_editor import HELLO

pytestmark = pytest.mark.skipif(not shutil.which("nvim"), reason="Neovim is not installed")

# Opens a file with a mistake, reads findings, proposals and hover, renames a step and saves.
SCRIPT = """
local result, file = {}, vim.fn.expand('%:p')
local function ask(method, line, column, more)
  local params = { textDocument = { uri = vim.uri_from_bufnr(0) }, position = { line = line, character = column } }
  local answers = vim.lsp.buf_request_sync(0, method, vim.tbl_extend('force', params, more or {}), 20000)
  for _, answer in pairs(answers or {}) do return answer.result end
end
local ok, problem = pcall(function()
  local client = vim.lsp.start_client({ name = 'segue', cmd = { vim.env.SEGUE_BIN, 'lsp' }, root_dir = vim.fn.fnamemodify(file, ':h') })
  vim.lsp.buf_attach_client(0, client)
  vim.wait(20000, function() return #vim.diagnostic.get(0) > 0 end, 20)
  result.findings = vim.tbl_map(function(it) return { it.lnum, it.message } end, vim.diagnostic.get(0))
  local line = vim.fn.search('tool: builtin:text_stats') - 1
  local items = ask('textDocument/completion', line, #'    tool: builtin:te')
  result.proposals = vim.tbl_map(function(it) return it.label end, items.items or items)
  line = vim.fn.search('- id: greeting') - 1
  result.hover = ask('textDocument/hover', line, 9).contents.value
  local edit = ask('textDocument/rename', line, 9, { newName = 'welcome' })
  vim.lsp.util.apply_workspace_edit(edit, vim.lsp.get_client_by_id(client).offset_encoding)
  vim.cmd('silent write')
  vim.lsp.stop_client(client)
  vim.wait(20000, function() return vim.lsp.client_is_stopped(client) end, 20)
  result.has_stopped = vim.lsp.client_is_stopped(client)
end)
result.problem = not ok and tostring(problem) or nil
vim.fn.writefile({ vim.fn.json_encode(result) }, vim.env.RESULT)
vim.cmd('qall!')
"""


def test_neovim_shows_findings_and_renames_a_step(world):
    text = HELLO.replace("count.chars", "nothing.chars")
    file, script = world.file("hello.yaml", text), world.file("script.lua", SCRIPT)
    result = world.home / "result.json"
    environment = world.environment() | {"SEGUE_BIN": SEGUE, "RESULT": str(result)}
    command = ["nvim", "--headless", "--clean", "-n", str(file), "-c", f"luafile {script}"]
    done = subprocess.run(command, cwd=world.work, env=environment, timeout=120, capture_output=True, text=True)
    assert result.exists(), done.stderr
    shown = json.loads(result.read_text())
    assert "problem" not in shown, shown
    assert any("nothing" in message for _, message in shown["findings"]), shown
    assert "builtin:text_stats" in shown["proposals"], shown
    assert "builtin:echo" in shown["hover"], shown
    assert shown["has_stopped"], shown
    renamed = text.replace("id: greeting", "id: welcome").replace("greeting.text", "welcome.text")
    assert file.read_text() == renamed
