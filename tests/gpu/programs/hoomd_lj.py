"""Runs the user's own HOOMD-blue (version 3 or later, as a Python module) on the fluid of `lammps.in`."""

import harness

parser = harness.arguments(__doc__, steps=2000, rounds=1)
parser.add_argument("--cells", type=int, default=76)
options = parser.parse_args()
numpy = harness.need("numpy")
hoomd = harness.need("hoomd")
harness.need("hoomd.md")

clock = harness.Clock("hoomd", options)
cells = options.cells
lattice = (4 / 0.8442) ** (1 / 3)
corners = numpy.array([(0, 0, 0), (0.5, 0.5, 0), (0.5, 0, 0.5), (0, 0.5, 0.5)])
places = numpy.stack(numpy.meshgrid(*[numpy.arange(cells)] * 3, indexing="ij"), axis=-1).reshape(-1, 1, 3)
positions = ((places + corners).reshape(-1, 3) - cells / 2) * lattice
device = hoomd.device.GPU()
simulation = hoomd.Simulation(device=device, seed=1)
snapshot = hoomd.Snapshot()
if snapshot.communicator.rank == 0:
    snapshot.configuration.box = [cells * lattice] * 3 + [0, 0, 0]
    snapshot.particles.types = ["A"]
    snapshot.particles.N = len(positions)
    snapshot.particles.position[:] = positions
simulation.create_state_from_snapshot(snapshot)
simulation.state.thermalize_particle_momenta(filter=hoomd.filter.All(), kT=1.44)
pairs = hoomd.md.pair.LJ(nlist=hoomd.md.nlist.Cell(buffer=0.3), default_r_cut=2.5)
pairs.params[("A", "A")] = {"epsilon": 1, "sigma": 1}
motion = hoomd.md.methods.ConstantVolume(filter=hoomd.filter.All())
simulation.operations.integrator = hoomd.md.Integrator(dt=0.005, methods=[motion], forces=[pairs])
thermo = hoomd.md.compute.ThermodynamicQuantities(filter=hoomd.filter.All())
simulation.operations.computes.append(thermo)
simulation.run(0)
energy = thermo.potential_energy / len(positions)
assert abs(energy - -6.7733681) < 1e-3, f"the lattice has {energy} per atom"
clock.run(lambda: simulation.run(1), lambda: None, warm_up=0)
results = harness.Results()
results.add([thermo.potential_energy, thermo.kinetic_energy])
clock.report(results, atoms=len(positions))
