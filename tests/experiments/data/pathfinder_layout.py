"""Writes images in Long Range Arena's layout."""

import io

import numpy as np
from PIL import Image


def png(pixels, **options):
    """Bytes of a PNG file of an array or an image."""
    file = io.BytesIO()
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    image.save(file, "PNG", **options)
    return file.getvalue()


def fields(batch, number, label):
    """What a metadata line says of an image, as the originals do."""
    return [f"imgs/{batch}", f"sample_{number}.png", str(number), str(label), "1.0", "14", "4", "2", "0.5", "1", "1"]


def as_text(rows):
    return "".join(" ".join(row) + "\n" for row in rows).encode()


def as_array(rows, **options):
    file = io.BytesIO()
    np.save(file, rows if isinstance(rows, np.ndarray) else np.array(rows, dtype=str), **options)
    return file.getvalue()


def lay_out(folder, batches, write=as_text, size=32):
    """Writes so many random images per batch, labels 0 and 1 in turn; returns their pixels by batch."""
    generator = np.random.default_rng(0)
    levels = {}
    (folder / "metadata").mkdir(parents=True)
    for batch, n_images in batches.items():
        (folder / "imgs" / batch).mkdir(parents=True)
        levels[batch] = list(generator.integers(0, 256, (n_images, size, size), dtype=np.uint8))
        for number, pixels in enumerate(levels[batch]):
            (folder / "imgs" / batch / f"sample_{number}.png").write_bytes(png(pixels))
        rows = [fields(batch, number, number % 2) for number in range(n_images)]
        (folder / "metadata" / f"{batch}.npy").write_bytes(write(rows))
    return levels
