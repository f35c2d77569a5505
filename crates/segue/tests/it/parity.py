"""Calls a generated client, and prints the value or the errors: parity.py TOOL INPUT."""
import asyncio
import importlib
import json
import sys

tool, given = sys.argv[1:]
module = importlib.import_module(f"segue_{tool}")
function = getattr(module, tool, None) or getattr(module, f"{tool}_")


def read(members):
    """The input; one that does not fit is sent all the same, so that Segue says what is wrong."""
    try:
        return module.Input.model_validate(members)
    except ValueError:
        return module.Input.model_construct(**members)


async def main():
    try:
        value = await function(module.Context(answer=True), read(json.loads(given)))
    except module.SegueError as error:
        return {"errors": error.errors, "result": error.result}
    is_model = hasattr(value, "model_dump")
    return {"value": value.model_dump(mode="json", by_alias=True, exclude_unset=True) if is_model else value}


print(json.dumps(asyncio.run(main())))
