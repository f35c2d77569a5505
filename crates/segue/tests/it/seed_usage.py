"""The usage that the chains' document shows, with clients that Segue generated; only the imports are Segue's."""
import asyncio

from segue_asks_first import SegueError, asks_first
from segue_asks_first import Context as AskingContext
from segue_echo_chain_demo import MDSContext, echo_chain_demo
from segue_needs_a_casefile import MDSContext as CasefileContext
from segue_needs_a_casefile import PolicyViolationError, needs_a_casefile


async def usage():
    ctx = MDSContext(user_id="user_123", session_id="session_456")
    result = await echo_chain_demo(ctx, initial_message="Hello chain!")

    print(result["steps_executed"])  # 3
    print(result["status"])           # "success"


async def test_echo_chain_success():
    """Test successful chain execution."""
    ctx = MDSContext(
        user_id="test_user",
        session_id="test_session"
    )

    result = await echo_chain_demo(
        ctx=ctx,
        initial_message="Test message"
    )

    assert result["status"] == "success"
    assert result["steps_executed"] == 3
    assert "final_result" in result["data"]["final_state"]


async def test_composite_tool_requires_casefile():
    """Test that composite tools enforce casefile policies."""
    ctx = CasefileContext(
        user_id="test_user",
        session_id="test_session",
        casefile_id=None  # Missing required casefile
    )
    try:
        await needs_a_casefile(ctx=ctx, initial_message="test")
    except PolicyViolationError as error:
        print(error.errors[0]["code"])
    casefile = CasefileContext(user_id="test_user", casefile_id="case_1")
    assert (await needs_a_casefile(casefile, initial_message="test"))["status"] == "success"


async def test_answers():
    """A run asks, and the context answers."""
    result = await asks_first(AskingContext(user_id="user_123", answer=lambda question, schema: "Go on?" in question))
    print(result["status"], result["data"]["said"])
    try:
        await asks_first(AskingContext(user_id="user_123", answer=False))
    except SegueError as error:
        print(error.result["status"], error.errors[0]["code"])


async def main():
    await usage()
    await test_echo_chain_success()
    await test_composite_tool_requires_casefile()
    await test_answers()


asyncio.run(main())
