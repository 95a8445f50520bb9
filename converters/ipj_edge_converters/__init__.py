"""The sources and converters that come with ipj-edge."""
