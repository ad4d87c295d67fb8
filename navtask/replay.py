"""Episodes to look at: good and failed ones side by side, as a picture and as a video.

Everything is drawn from the engine's model of a room and the configurations that it went through, so it serves every
task. The flat view is drawn by Pillow; MuJoCo's own renderer takes its place where ``MUJOCO_GL`` names an off-screen
back end (egl, osmesa), which has to be said before MuJoCo is imported.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import av
import mujoco
import numpy as np
from PIL import Image, ImageDraw, ImageFont

SPEED = 2.0
"""The video runs so much faster than the world."""

EVERY = 2
"""The video shows every second instant: a trial waits for it."""

LINGER = 1.5
"""The video stands still on its last picture, s."""

OFF_SCREEN = ("egl", "osmesa")

COLOURS = {"success": (23, 130, 84), "collision": (200, 40, 40), "timeout": (214, 130, 0)}
_OTHER = (110, 60, 160)
_GROUND, _SOLID = (250, 250, 247), (105, 110, 118)
_ROBOT, _SEEN, _GOAL, _TEXT = (52, 101, 164), (222, 235, 249), (240, 200, 60), (30, 30, 30)
_SMOOTH = 2  # drawn larger and scaled down, for smooth edges


@dataclass(frozen=True)
class Replay:
    """One episode in one room."""

    title: str
    """Say ``room 17``."""
    outcome: str
    """How it ended: one of the task's ``causes``."""
    model: mujoco.MjModel
    """The room."""
    qpos: np.ndarray
    """(T, nq) at every instant, the first and the last included."""
    trail: np.ndarray
    """(T, 3) what leaves a line behind it, m."""
    goal: np.ndarray
    """(3,) m."""
    goal_radius: float
    control_dt: float
    """Time between two instants, s."""
    extent: tuple[float, float, float, float]
    """What is shown: least and greatest coordinate along the first and the second axis of ``axes``, m."""
    axes: tuple[int, int] = (0, 1)
    """World axes that lie to the right and up in the flat view."""
    scan: np.ndarray | None = None
    """(T, beams, 2) where the beams end, m."""


Painter = Callable[[int], Image.Image]
"""Instant of an episode -> its picture."""


class FlatView:
    """Paints a room seen along the third axis: solids, the way so far, the scan, the goal, the robot."""

    def __init__(self, replay: Replay, size: int):
        self._replay, self._size = replay, size * _SMOOTH
        left, right, bottom, top = replay.extent
        self._scale = self._size / max(right - left, top - bottom)
        self._data = mujoco.MjData(replay.model)
        self._colour = COLOURS.get(replay.outcome, _OTHER)
        self._font = ImageFont.load_default(13 * _SMOOTH)
        self._ground = Image.new("RGB", (self._size, self._size), _GROUND)
        self._standing = Image.new("1", (self._size, self._size))
        self._kinematics(0)
        self._solids(ImageDraw.Draw(self._standing), 1, moving=False)

    def __call__(self, instant: int) -> Image.Image:
        """The picture at an instant, (size, size)."""
        replay = self._replay
        now = min(instant, len(replay.qpos) - 1)
        self._kinematics(now)
        image = self._ground.copy()
        draw = ImageDraw.Draw(image)
        if replay.scan is not None:
            draw.polygon([self._pixel_of(*end) for end in replay.scan[now]], fill=_SEEN)
        image.paste(_SOLID, mask=self._standing)
        x, y = self._pixel(replay.goal)
        radius = replay.goal_radius * self._scale
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=_GOAL)
        way = [self._pixel(place) for place in replay.trail[: now + 1]]
        if len(way) > 1:
            draw.line(way, fill=self._colour, width=3 * _SMOOTH, joint="curve")
        x, y = way[0]
        draw.ellipse((x - 4, y - 4, x + 4, y + 4), fill=self._colour)
        self._solids(draw, _ROBOT, moving=True)
        over = now == len(replay.qpos) - 1
        told = f"{replay.title}  {now * replay.control_dt:.1f} s" + (f"  {replay.outcome}" if over else "")
        draw.rectangle((0, 0, self._size, 20 * _SMOOTH), fill=(255, 255, 255))
        draw.text((6 * _SMOOTH, 2 * _SMOOTH), told, fill=self._colour if over else _TEXT, font=self._font)
        draw.rectangle((0, 0, self._size - 1, self._size - 1), outline=(200, 200, 200))
        return image.reduce(_SMOOTH)

    def _kinematics(self, instant: int) -> None:
        self._data.qpos[:] = self._replay.qpos[instant]
        mujoco.mj_kinematics(self._replay.model, self._data)

    def _pixel(self, place: np.ndarray) -> tuple[float, float]:
        first, second = self._replay.axes
        return self._pixel_of(place[first], place[second])

    def _pixel_of(self, right: float, up: float) -> tuple[float, float]:
        left, _, bottom, _ = self._replay.extent
        return (right - left) * self._scale, self._size - (up - bottom) * self._scale

    def _solids(self, draw: ImageDraw.ImageDraw, colour: int | tuple[int, int, int], *, moving: bool) -> None:
        model, data = self._replay.model, self._data
        for geom in range(model.ngeom):
            if (model.geom_bodyid[geom] != 0) != moving:
                continue
            kind, size = mujoco.mjtGeom(model.geom_type[geom]), model.geom_size[geom] * self._scale
            centre, axes = data.geom_xpos[geom], data.geom_xmat[geom].reshape(3, 3)
            x, y = self._pixel(centre)
            if kind == mujoco.mjtGeom.mjGEOM_BOX:
                shown = axes[list(self._replay.axes)] * model.geom_size[geom]  # half-edges, as seen
                draw.polygon(self._outline(centre, shown), fill=colour)
            elif kind == mujoco.mjtGeom.mjGEOM_CAPSULE:
                end = axes[:, 2] * model.geom_size[geom][1]
                ends = [self._pixel(centre - end), self._pixel(centre + end)]
                draw.line(ends, fill=colour, width=round(2 * size[0]))
                for ex, ey in ends:
                    draw.ellipse((ex - size[0], ey - size[0], ex + size[0], ey + size[0]), fill=colour)
            elif kind in (mujoco.mjtGeom.mjGEOM_CYLINDER, mujoco.mjtGeom.mjGEOM_SPHERE):
                draw.ellipse((x - size[0], y - size[0], x + size[0], y + size[0]), fill=colour)
                if moving and kind == mujoco.mjtGeom.mjGEOM_CYLINDER:  # which way it faces
                    ahead = self._pixel(centre + axes[:, 0] * model.geom_size[geom][0])
                    draw.line((x, y, *ahead), fill=(255, 255, 255), width=2 * _SMOOTH)

    def _outline(self, centre: np.ndarray, half_edges: np.ndarray) -> list[tuple[float, float]]:
        """Outline of a box from its half-edges (2, 3) as seen: its corners on the hull, in order."""
        signs = np.array(np.meshgrid([-1, 1], [-1, 1], [-1, 1])).reshape(3, -1)
        corners = (half_edges @ signs).T + centre[list(self._replay.axes)]
        # The hull of a few points by angle: a corner is on it when it is the farthest in some direction.
        angles = np.linspace(0, 2 * np.pi, 360, endpoint=False) + 1e-3
        farthest = (corners @ np.stack([np.cos(angles), np.sin(angles)])).argmax(0)
        order = [int(k) for i, k in enumerate(farthest) if i == 0 or k != farthest[i - 1]]
        return [self._pixel_of(*corners[k]) for k in order]


class RenderedView:
    """Paints a room with MuJoCo's renderer, from above and a little aside. Raises where there is no renderer."""

    def __init__(self, replay: Replay, size: int):
        self._replay = replay
        self._data = mujoco.MjData(replay.model)
        model = replay.model
        model.vis.headlight.ambient[:], model.vis.headlight.diffuse[:] = 0.45, 0.5
        model.geom_rgba[:] = [*(c / 255 for c in _SOLID), 1.0]
        model.geom_rgba[model.geom_bodyid != 0] = [*(c / 255 for c in _ROBOT), 1.0]
        self._renderer = mujoco.Renderer(model, size, size)
        left, right, bottom, top = replay.extent
        self._camera = mujoco.MjvCamera()
        self._camera.lookat = replay.goal if replay.axes != (0, 1) else [(left + right) / 2, (bottom + top) / 2, 0.0]
        self._camera.distance = 1.45 * max(right - left, top - bottom)
        self._camera.azimuth, self._camera.elevation = 90.0, -65.0 if replay.axes == (0, 1) else -20.0

    def __call__(self, instant: int) -> Image.Image:
        """The picture at an instant, (size, size)."""
        replay = self._replay
        self._data.qpos[:] = replay.qpos[min(instant, len(replay.qpos) - 1)]
        mujoco.mj_forward(replay.model, self._data)
        self._renderer.update_scene(self._data, self._camera)
        left, right, bottom, top = replay.extent
        floor = np.array([max(right - left, top - bottom) / 2] * 2 + [0.1])
        self._add(mujoco.mjtGeom.mjGEOM_PLANE, floor, np.zeros(3), _GROUND)
        self._add(mujoco.mjtGeom.mjGEOM_SPHERE, np.full(3, replay.goal_radius), replay.goal, _GOAL)
        return Image.fromarray(self._renderer.render())

    def _add(self, kind: mujoco.mjtGeom, size: np.ndarray, place: np.ndarray, colour: tuple[int, int, int]) -> None:
        """Put something into the scene that is not in the model."""
        scene = self._renderer.scene
        rgba = np.array([*(c / 255 for c in colour), 1.0], dtype=np.float32)
        mujoco.mjv_initGeom(scene.geoms[scene.ngeom], kind, size, place, np.eye(3).ravel(), rgba)
        scene.ngeom += 1


def choose(success: Sequence[bool], times: np.ndarray, count: int) -> list[int]:
    """``count`` rooms, half of them successes, from the quickest to the slowest, then failures, by number.

    Where there are too few of one kind, the other fills up.
    """
    good = sorted((k for k, reached in enumerate(success) if reached), key=lambda k: (times[k], k))
    failed = [k for k, reached in enumerate(success) if not reached]
    failures = min(len(failed), max(count // 2, count - len(good)))
    successes = min(len(good), count - failures)
    spread = np.linspace(0, len(good) - 1, successes).round().astype(int)
    return [*(good[k] for k in spread), *failed[:failures]]


def draw_picture(replays: Sequence[Replay], path: Path, *, size: int = 360) -> None:
    """Whole trajectories as a PNG: successes in the upper row, failures in the lower, each at its last instant."""
    pictures = [FlatView(replay, size)(len(replay.qpos)) for replay in replays]
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    _side_by_side(pictures, -(-len(pictures) // 2) if len(pictures) > 1 else 1).save(aside, "PNG")
    os.replace(aside, path)


def make_video(replays: Sequence[Replay], path: Path, *, size: int = 360) -> str:
    """All episodes side by side from their beginning, as an MP4 (H.264). Returns which view it shows."""
    view, painters = _painters(replays, size)
    instants = max(len(replay.qpos) for replay in replays)
    rate = max(1, round(SPEED / (EVERY * replays[0].control_dt)))
    shown = [*range(0, instants - 1, EVERY), instants - 1]
    columns = -(-len(replays) // 2) if len(replays) > 1 else 1
    aside = path.with_name(f".{os.getpid()}.{path.name}")
    with av.open(str(aside), "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=rate, options={"crf": "26", "preset": "veryfast"})
        stream.width, stream.height = size * columns, size * -(-len(replays) // columns)
        stream.pix_fmt = "yuv420p"
        for instant in shown:
            picture = _side_by_side([paint(instant) for paint in painters], columns)
            repeats = 1 if instant < instants - 1 else 1 + round(LINGER * rate)
            for _ in range(repeats):
                container.mux(stream.encode(av.VideoFrame.from_image(picture)))
        container.mux(stream.encode())
    os.replace(aside, path)
    return view


def _painters(replays: Sequence[Replay], size: int) -> tuple[str, list[Painter]]:
    if os.environ.get("MUJOCO_GL", "").lower() in OFF_SCREEN:
        try:
            return "mujoco", [RenderedView(replay, size) for replay in replays]
        except Exception as error:  # whatever a missing or broken driver leads to
            print(f"MuJoCo's renderer doesn't work here ({type(error).__name__}); the flat view instead", flush=True)
    return "flat", [FlatView(replay, size) for replay in replays]


def _side_by_side(pictures: Sequence[Image.Image], columns: int) -> Image.Image:
    width, height = pictures[0].size
    rows = -(-len(pictures) // columns)
    whole = Image.new("RGB", (width * columns, height * rows), (255, 255, 255))
    for k, picture in enumerate(pictures):
        whole.paste(picture, (k % columns * width, k // columns * height))
    return whole
