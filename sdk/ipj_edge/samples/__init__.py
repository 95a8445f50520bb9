"""Samples: arrays, folders of images, preprocessing."""
