// Decoder of .lzma files (LZMA1 with its length in the header), as Python's lzma writes them. The browser's own
// "deflate" looks 32 KiB back; formulas of many models repeat over megabytes.
const HEADER = 13; // bytes: properties, size of the dictionary, size of the content

// Adaptive binary range decoder over the bytes after the header. Probabilities have 11 bits and adapt by 1/32.
function rangeDecoder(bytes) {
  const range = new Uint32Array([2 ** 32 - 1]);
  const code = new Uint32Array([new DataView(bytes.buffer, bytes.byteOffset).getUint32(HEADER + 1)]);
  let next = HEADER + 5;

  function widen() {
    range[0] <<= 8;
    code[0] = (code[0] << 8) | bytes[next++];
  }

  const models = (count) => new Uint16Array(count).fill(1024);

  function bit(model, place) {
    const probability = model[place], bound = Math.imul(range[0] >>> 11, probability) >>> 0;
    if (code[0] < bound) {
      range[0] = bound;
      model[place] = probability + ((2048 - probability) >>> 5);
      if (range[0] < 0x1000000) widen();
      return 0;
    }
    range[0] -= bound;
    code[0] -= bound;
    model[place] = probability - (probability >>> 5);
    if (range[0] < 0x1000000) widen();
    return 1;
  }

  function bits(model, start, count) { // the highest first
    let node = 1;
    for (let level = 0; level < count; level++) node = (node << 1) | bit(model, start + node);
    return node - (1 << count);
  }

  function bitsReversed(model, start, count) { // the lowest first
    let node = 1, value = 0;
    for (let level = 0; level < count; level++) {
      const one = bit(model, start + node);
      node = (node << 1) | one;
      value |= one << level;
    }
    return value;
  }

  function evenBits(count) { // each as likely 0 as 1
    let value = 0;
    for (let level = 0; level < count; level++) {
      range[0] >>>= 1;
      const one = code[0] < range[0] ? 0 : 1;
      if (one) code[0] -= range[0];
      value = value * 2 + one;
      if (range[0] < 0x1000000) widen();
    }
    return value;
  }

  return { models, bit, bits, bitsReversed, evenBits };
}

// The content of a file: bytes, and copies of what was written before, at a new distance or at one of the last four.
function decompressed(bytes) {
  const { models, bit, bits, bitsReversed, evenBits } = rangeDecoder(bytes);
  const contextBits = bytes[0] % 9, positionBits = Math.trunc(bytes[0] / 9) % 5, alignBits = Math.trunc(bytes[0] / 45);
  const written = new Uint8Array(new DataView(bytes.buffer, bytes.byteOffset).getUint32(5, true));
  const aligned = (1 << alignBits) - 1, positions = (1 << positionBits) - 1;

  const literals = models(0x300 << (contextBits + positionBits));
  const isCopy = models(12 << 4), isRepeated = models(12), isEarlier = models(12), isLong = models(12 << 4);
  const isThird = models(12), isFourth = models(12);
  const slots = models(4 << 6), middleBits = models(128), lowBits = models(16);
  const lengthModels = () => ({ choice: models(2), low: models(16 << 3), middle: models(16 << 3), high: models(256) });
  const newLengths = lengthModels(), repeatedLengths = lengthModels();

  function literal(end, distance, afterCopy) {
    const before = end ? written[end - 1] : 0;
    const start = 0x300 * (((end & positions) << contextBits) + (before >> (8 - contextBits)));
    let node = 1;
    if (afterCopy) // the byte that a copy would have gone on with is a guess, as long as it is right
      for (let guess = written[end - distance], right = true; right && node < 0x100; guess <<= 1) {
        const expected = (guess >> 7) & 1, one = bit(literals, start + ((1 + expected) << 8) + node);
        node = (node << 1) | one;
        right = one === expected;
      }
    while (node < 0x100) node = (node << 1) | bit(literals, start + node);
    return node; // cut to a byte when it is written
  }

  function lengthOf({ choice, low, middle, high }, place) {
    if (!bit(choice, 0)) return 2 + bits(low, place << 3, 3);
    return bit(choice, 1) ? 18 + bits(high, 0, 8) : 10 + bits(middle, place << 3, 3);
  }

  function distanceOf(length) {
    const slot = bits(slots, Math.min(length - 2, 3) << 6, 6);
    if (slot < 4) return slot + 1;
    const count = (slot >> 1) - 1, start = (2 | (slot & 1)) * 2 ** count;
    if (slot < 14) return start + bitsReversed(middleBits, start - slot, count) + 1;
    return start + evenBits(count - 4) * 16 + bitsReversed(lowBits, 0, 4) + 1;
  }

  let state = 0, distance = 1, second = 1, third = 1, fourth = 1;
  for (let end = 0; end < written.length;) {
    const place = end & aligned, model = (state << 4) + place;
    if (!bit(isCopy, model)) {
      written[end] = literal(end, distance, state > 6);
      end++;
      state = state < 4 ? 0 : state < 10 ? state - 3 : state - 6;
      continue;
    }
    let length;
    if (!bit(isRepeated, state)) {
      [second, third, fourth] = [distance, second, third];
      length = lengthOf(newLengths, place);
      distance = distanceOf(length);
      state = state < 7 ? 7 : 10;
    } else {
      const earlier = bit(isEarlier, state);
      if (earlier) {
        if (!bit(isThird, state)) [distance, second] = [second, distance];
        else if (!bit(isFourth, state)) [distance, second, third] = [third, distance, second];
        else [distance, second, third, fourth] = [fourth, distance, second, third];
      }
      if (earlier || bit(isLong, model)) {
        length = lengthOf(repeatedLengths, place);
        state = state < 7 ? 8 : 11;
      } else {
        length = 1;
        state = state < 7 ? 9 : 11;
      }
    }
    const from = end - distance;
    if (length > 32 && distance >= length) written.copyWithin(end, from, from + length);
    else for (let offset = 0; offset < length; offset++) written[end + offset] = written[from + offset];
    end += length;
  }
  return written;
}
