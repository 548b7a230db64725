"""Runs in the trackers that people know: one file per tracker."""
