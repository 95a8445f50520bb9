"""Commands that measure, and judge what was measured."""
