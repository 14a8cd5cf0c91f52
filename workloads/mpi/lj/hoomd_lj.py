#!/usr/bin/env python3
"""A Lennard-Jones fluid in HOOMD-blue (version 3 or later): hoomd_lj.py --particles N [--steps S].

Prints `TPS: X`, steps per second, from rank 0. Each rank takes a GPU of its node in turn, or the processor where there is none.
"""

import argparse

import hoomd
import hoomd.md

DENSITY = 0.8442


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--particles", type=int, default=256000)
    parser.add_argument("--steps", type=int, default=1000)
    options = parser.parse_args()

    device = hoomd.device.auto_select()
    simulation = hoomd.Simulation(device=device, seed=1)
    edge = 1
    while edge**3 < options.particles:
        edge += 1
    spacing = DENSITY ** (-1 / 3)
    length = edge * spacing
    snapshot = hoomd.Snapshot(device.communicator)
    if device.communicator.rank == 0:
        snapshot.configuration.box = [length, length, length, 0, 0, 0]
        snapshot.particles.N = options.particles
        snapshot.particles.types = ["A"]
        snapshot.particles.position[:] = [
            [(place // step % edge + 0.5) * spacing - length / 2 for step in (1, edge, edge * edge)]
            for place in range(options.particles)
        ]
    simulation.create_state_from_snapshot(snapshot)
    simulation.state.thermalize_particle_momenta(filter=hoomd.filter.All(), kT=1.44)
    pairs = hoomd.md.pair.LJ(nlist=hoomd.md.nlist.Cell(buffer=0.3), default_r_cut=2.5)
    pairs.params[("A", "A")] = {"epsilon": 1.0, "sigma": 1.0}
    motion = hoomd.md.methods.ConstantVolume(filter=hoomd.filter.All())
    simulation.operations.integrator = hoomd.md.Integrator(dt=0.005, methods=[motion], forces=[pairs])
    simulation.run(max(1, options.steps // 10))
    simulation.run(options.steps)
    if device.communicator.rank == 0:
        print(f"TPS: {simulation.tps:.6g}")


if __name__ == "__main__":
    main()
