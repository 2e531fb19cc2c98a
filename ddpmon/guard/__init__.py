"""Looks after runs without a screen: tells a command or a web address what begins and what is over, once each."""
