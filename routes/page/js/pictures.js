/** Pictures that are too large to send are made smaller here: models look at them in small anyway. */

const MOST_BYTES = 4 * 1024 * 1024;
const LONGEST = 2048; // pixels of the longer side
const QUALITY = 0.88;

/** The picture as it is, or a smaller one. Raises an Error where it cannot be read. */
export async function smaller(file) {
  if (file.size <= MOST_BYTES) return file;
  const bitmap = await createImageBitmap(file).catch(() => null);
  if (!bitmap) throw new Error("this picture cannot be read. Is it whole?");
  const scale = Math.min(1, LONGEST / Math.max(bitmap.width, bitmap.height));
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(bitmap.width * scale));
  canvas.height = Math.max(1, Math.round(bitmap.height * scale));
  canvas.getContext("2d").drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  bitmap.close();
  const kinds = file.type === "image/png" ? ["image/png", "image/webp", "image/jpeg"] : ["image/webp", "image/jpeg"];
  for (const kind of kinds) {
    const made = await new Promise((resolve) => canvas.toBlob(resolve, kind, QUALITY));
    if (made && made.size <= MOST_BYTES) return made;
  }
  throw new Error("this picture is too large. Make it smaller first.");
}
