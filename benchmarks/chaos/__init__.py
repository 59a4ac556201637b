"""Kills, full disks, jumping clocks and cut networks, and what must hold in spite of them."""
