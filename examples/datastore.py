"""
A team's notes: each run writes one into its own checkout, and shows what everybody has written.

    python examples/datastore.py DATASTORE CHECKOUT [NAME TEXT]
"""

import sys

from tenure import CommitUnknownError, Datastore, WriterBusyError

store, here, *note = sys.argv[1:]
datastore = Datastore.create(store)
with datastore.checkout(here, label="taking notes") as checkout:
    try:
        if note:
            name, text = note
            with checkout.writer(timeout=60) as writer:
                # By now the files are the newest, and what a dead writer had left here is put right.
                for moved in writer.recovered.moved_aside:
                    print(f"not committed by the last writer, kept in {moved}")
                writer.put(name, text.encode())
                done = writer.commit(f"note {name}")
                print("nothing has changed" if done is None else f"version {done.slot}")
        else:
            caught = checkout.catch_up()
            print(f"from version {caught.before} to {caught.after}")
    except WriterBusyError as error:
        sys.exit(f"{error}\n{error.hint}")
    except CommitUnknownError as error:
        sys.exit(f"{error}\nrun `tenure recover -C {here}`: it lands, or is reported")
    for found in datastore.files():
        print(f"{found.name}: {datastore.read(found.name).decode()}")
