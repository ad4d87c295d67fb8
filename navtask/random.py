"""Counter-based random numbers, the same on every device: Philox4x32-10.

J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011. A number is a function of
(seed, stream, room, episode, purpose, index) alone, so a room's episodes don't depend on how many rooms, threads or
devices there are, nor on what other rooms drew.
"""

import warp as wp

wp.config.log_level = wp.LOG_WARNING  # its banner belongs to no program that uses this package
wp.set_module_options({"enable_backward": False})

# Streams: frozen evaluation sets draw from one that training never touches, whatever its seed.
TRAINING = wp.constant(0)
FROZEN = wp.constant(1)

# Purposes: each has numbers of its own, so one more draw here shifts nothing there.
OBSTACLES = wp.constant(0)
PLACES = wp.constant(1)
SCAN_NOISE = wp.constant(2)
AGES = wp.constant(3)
POSTURES = wp.constant(4)
TARGETS = wp.constant(5)

# Multipliers and Weyl constants of the paper.
M0 = wp.constant(wp.uint64(0xD2511F53))
M1 = wp.constant(wp.uint64(0xCD9E8D57))
W0 = wp.constant(wp.uint32(0x9E3779B9))
W1 = wp.constant(wp.uint32(0xBB67AE85))

vec4u = wp.types.vector(length=4, dtype=wp.uint32)


@wp.struct
class Source:
    """Where the rooms of a batch draw from: room i is room ``first_room + i`` of this seed and stream."""

    seed: int
    stream: int
    first_room: int


def source(seed: int, stream: int = TRAINING, first_room: int = 0) -> Source:
    """Of rooms to train in unless told otherwise."""
    s = Source()
    s.seed, s.stream, s.first_room = seed, stream, first_room
    return s


@wp.struct
class Key:
    """Whose numbers: everything but the purpose and the index."""

    seed: int
    stream: int
    room: int
    episode: int


@wp.func
def key(source: Source, room: int, episode: int) -> Key:
    """Of an episode in a room of a batch."""
    k = Key()
    k.seed = source.seed
    k.stream = source.stream
    k.room = source.first_room + room
    k.episode = episode
    return k


@wp.func
def philox(counter: vec4u, key0: wp.uint32, key1: wp.uint32) -> vec4u:
    """Ten rounds of Philox4x32 on ``counter``."""
    half = wp.uint64(32)
    c = counter
    k0 = key0
    k1 = key1
    for _round in range(10):
        p0 = M0 * wp.uint64(c[0])
        p1 = M1 * wp.uint64(c[2])
        c = vec4u(
            wp.uint32(p1 >> half) ^ c[1] ^ k0,
            wp.uint32(p1),
            wp.uint32(p0 >> half) ^ c[3] ^ k1,
            wp.uint32(p0),
        )
        k0 = k0 + W0
        k1 = k1 + W1
    return c


@wp.func
def uniform4(key: Key, purpose: int, index: int) -> wp.vec4:
    """Four numbers, uniform on [0, 1), with 24 bits each."""
    bits = philox(
        vec4u(wp.uint32(index), wp.uint32(purpose), wp.uint32(key.episode), wp.uint32(key.room)),
        wp.uint32(key.seed),
        wp.uint32(key.stream),
    )
    shift = wp.uint32(8)
    scale = float(5.9604644775390625e-08)  # 2^-24
    return wp.vec4(
        float(bits[0] >> shift) * scale,
        float(bits[1] >> shift) * scale,
        float(bits[2] >> shift) * scale,
        float(bits[3] >> shift) * scale,
    )


@wp.func
def normal2(u0: float, u1: float) -> wp.vec2:
    """Two standard normal numbers from two uniform ones (Box and Muller 1958)."""
    radius = wp.sqrt(-2.0 * wp.log(1.0 - u0))
    angle = 2.0 * wp.pi * u1
    return wp.vec2(radius * wp.cos(angle), radius * wp.sin(angle))
