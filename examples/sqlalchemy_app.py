"""
An existing SQLAlchemy application, made safe by four lines: those that carry a number.

Two instances of it edit the same page. Each loads it into memory, where it stays for as long as its user thinks, and
stores what it has in memory. Without the four lines the slower one overwrites the faster one, in perfect transactions.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass

from sqlalchemy import Engine, create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tenure.sql import EpochFence, Pin, StaleEpochError


class Base(DeclarativeBase):
    """The application's tables."""


class Page(Base):
    """A page of a wiki."""

    __tablename__ = "page"

    name: Mapped[str] = mapped_column(primary_key=True)
    body: Mapped[str]


@dataclass
class Draft:
    """What an instance has in memory of a page: and now also when it was loaded."""

    name: str
    body: str
    pin: Pin


class Wiki:
    """One instance of the application."""

    def __init__(self, engine: Engine) -> None:
        Base.metadata.create_all(engine)
        self.fence = EpochFence(engine)
        self.fence.migrate(existing="SELECT name AS scope FROM page")  # 1: at boot, from every instance

    def load(self, name: str) -> Draft:
        """The page as it is now, to be edited."""
        with self.fence.read(name) as snap, snap.session() as session:  # 2: was `with Session(engine) as session`
            page = session.get_one(Page, name)
            return Draft(name, page.body, snap.pin)  # 3: the pin stays with what was loaded

    def store(self, draft: Draft) -> None:
        """Keep what was edited, or raise `StaleEpochError`."""
        with self.fence.write(draft.pin) as tx, tx.session() as session:  # 4: was `with Session(engine) as session`
            session.get_one(Page, draft.name).body = draft.body
            session.commit()


def main() -> int:
    """Two users edit one page; 0 if both are kept."""
    with tempfile.TemporaryDirectory() as directory:
        engine = create_engine(f"sqlite:///{directory}/wiki.db")
        Base.metadata.create_all(engine)
        with Session(engine) as session:
            session.add(Page(name="home", body="Welcome."))
            session.commit()

        ann, bob = Wiki(engine), Wiki(engine)
        slow, fast = ann.load("home"), bob.load("home")
        fast.body += " Bob was here."
        bob.store(fast)

        slow.body += " Ann was here."
        try:
            ann.store(slow)
        except StaleEpochError as error:
            print(f"HTTP {error.http_status}: {error.hint}")
        again = ann.load("home")
        again.body += " Ann was here."
        ann.store(again)

        print(ann.load("home").body)
        kept = ann.load("home").body == "Welcome. Bob was here. Ann was here."
        engine.dispose()
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
