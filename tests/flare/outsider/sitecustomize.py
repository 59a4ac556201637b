"""Makes the silo that is started with this folder on its path an outsider who wants into a job.

It has no part in the job whose number it finds in a file. It asks a silo of that job as itself, as
its own part of the job, which there is not, and as the server; and writes down what became of it.
"""

import gc
import json
import os
import sys
import threading
import time
from pathlib import Path

WANTED = {"silo": "East.{job}", "server": "server.{job}"}


def _ask(place):
    asked = place / "asked"
    while not asked.exists():
        time.sleep(0.2)
    about = json.loads(asked.read_text())
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

    cell = next(one for one in gc.get_objects() if isinstance(one, Cell))
    own, heard = cell.core_cell.my_info.fqcn, {}
    for claimed in (own, f"{own}.{about['job']}", f"server.{about['job']}"):
        for target, name in WANTED.items():
            site = "East.client" if target == "silo" else "server.server"
            headers = {
                CallHeaderKey.PROTOCOL_VERSION: CALL_PROTOCOL_VERSION,
                CallHeaderKey.TARGET_NAME: site,
                CallHeaderKey.METHOD_NAME: "ask",
            }
            payload = {
                ObjectCallKey.CALLER: "server" if claimed.startswith("server") else own,
                ObjectCallKey.TARGET_NAME: site,
                ObjectCallKey.METHOD_NAME: "ask",
                ObjectCallKey.ARGS: (),
                ObjectCallKey.KWARGS: {"message": bytes.fromhex(about["message"])},
            }
            cell.core_cell.my_info.fqcn = claimed
            try:
                reply = cell.send_request(
                    channel=MSG_CHANNEL,
                    target=name.format(job=about["job"]),
                    topic=MSG_TOPIC,
                    request=new_cell_message(headers, payload),
                    timeout=4.0,
                )
            finally:
                cell.core_cell.my_info.fqcn = own
            code = str(reply.get_header(MessageHeaderKey.RETURN_CODE, ""))
            heard[f"{claimed} to {target}"] = [code, repr(reply.payload)]
    (place / "unfinished").write_text(json.dumps(heard))
    (place / "unfinished").rename(place / "heard")


if "client_train" in " ".join(sys.orig_argv) and "SOUTH_HEARS" in os.environ:
    threading.Thread(target=_ask, args=(Path(os.environ["SOUTH_HEARS"]),), daemon=True).start()
