"""The coordinator's rules, independent of the network: accounts, members, reports, decisions."""
