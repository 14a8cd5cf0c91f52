"""cuFFT through PyTorch: lengths that are powers of two, composite and prime, in one to three dimensions."""

import harness

options = harness.arguments(__doc__, steps=20).parse_args()
torch = harness.torch_that_repeats()
clock = harness.Clock("torch_fft", options)
shapes = [(64, 4096), (8, 3 * 5 * 7 * 11), (4, 10007), (256, 256), (32, 48, 20)]
inputs = [torch.randn(shape, dtype=torch.float64).cuda() for shape in shapes]
results = harness.Results()
for x in inputs:
    over = tuple(range(1 if x.dim() == 2 and x.shape[0] != x.shape[1] else 0, x.dim()))
    spectrum = torch.fft.fftn(x, dim=over)
    torch.testing.assert_close(spectrum.cpu(), torch.fft.fftn(x.cpu(), dim=over), rtol=1e-9, atol=1e-8)
    torch.testing.assert_close(torch.fft.ifftn(spectrum, dim=over).real, x, rtol=1e-9, atol=1e-9)
    half = torch.fft.rfftn(x.float(), dim=over)
    torch.testing.assert_close(half.cpu(), torch.fft.rfftn(x.cpu(), dim=over).to(torch.complex64), rtol=1e-3, atol=1e-2)
    results.add(spectrum.cpu().numpy())
    results.add(half.cpu().numpy())
clock.first_result()


def step() -> None:
    for x in inputs:
        torch.fft.ifft(torch.fft.fft(x))


clock.run(step, torch.cuda.synchronize)
clock.report(results)
