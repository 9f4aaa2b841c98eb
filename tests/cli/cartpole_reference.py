# SPDX-License-Identifier: Apache-2.0
"""A cart with a pole, from the equations of motion: a second implementation for tests/cli/cartpole_test.cc.

usage: cartpole_reference.py X SPEED ANGLE TURNING ACTIONS    (ACTIONS: 0 and 1, as a word)
Prints the four numbers of the state after each action.

The pole is a uniform rod, whose moment about the hinge is 4/3 m l² for half its length l:
  (M + m) x'' + m l (angle'' cos - angle'² sin) = force
  x'' cos + 4/3 l angle''                       = g sin
Two linear equations for x'' and angle'', by Cramer's rule; then a step of Euler's method, in which
both positions move with the speeds from before the step.
"""
import math
import sys

cart, pole, half, gravity, push, tau = 1.0, 0.1, 0.5, 9.8, 10.0, 0.02
x, v, a, w = map(float, sys.argv[1:5])
for action in sys.argv[5]:
    force = push if action == "1" else -push
    s, c = math.sin(a), math.cos(a)
    a11, a12, b1 = cart + pole, pole * half * c, force + pole * half * w * w * s
    a21, a22, b2 = c, 4.0 / 3.0 * half, gravity * s
    determinant = a11 * a22 - a12 * a21
    x2, a2 = (b1 * a22 - a12 * b2) / determinant, (a11 * b2 - b1 * a21) / determinant
    x, v, a, w = x + tau * v, v + tau * x2, a + tau * w, w + tau * a2
    print(repr(x), repr(v), repr(a), repr(w))
