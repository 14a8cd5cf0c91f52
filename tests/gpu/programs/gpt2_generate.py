"""PyTorch: GPT-2 small with random weights and a cache of keys and values, a token at a time. A step is a token."""

import math

import harness

parser = harness.arguments(__doc__, steps=64, rounds=8)
parser.add_argument("--precision", choices=("fp32", "fp16"), default="fp32")
options = parser.parse_args()
torch = harness.torch_that_repeats()
from torch import nn  # noqa: E402 - after the settings above
from torch.nn import functional  # noqa: E402

LAYERS, HEADS, WIDTH, VOCABULARY, CONTEXT, PROMPT = 12, 12, 768, 50257, 1024, 16


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before_attention = nn.LayerNorm(WIDTH)
        self.attention = nn.Linear(WIDTH, 3 * WIDTH)
        self.projection = nn.Linear(WIDTH, WIDTH)
        self.before_mlp = nn.LayerNorm(WIDTH)
        self.widen = nn.Linear(WIDTH, 4 * WIDTH)
        self.narrow = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: "torch.Tensor", cache: "tuple | None") -> "tuple":
        batch, length, _ = x.shape
        parts = self.attention(self.before_attention(x)).split(WIDTH, dim=2)
        query, key, value = (part.view(batch, length, HEADS, -1).transpose(1, 2) for part in parts)
        if cache is not None:
            key = torch.cat((cache[0], key), dim=2)
            value = torch.cat((cache[1], value), dim=2)
        scores = query @ key.transpose(2, 3) / math.sqrt(WIDTH // HEADS)
        if cache is None:
            hidden = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
            scores = scores.masked_fill(hidden, float("-inf"))
        mixed = (scores.softmax(-1) @ value).transpose(1, 2).reshape(batch, length, WIDTH)
        x = x + self.projection(mixed)
        x = x + self.narrow(functional.gelu(self.widen(self.before_mlp(x)), approximate="tanh"))
        return x, (key, value)


class Gpt2(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.last = nn.LayerNorm(WIDTH)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: "torch.Tensor", caches: "list | None") -> "tuple":
        seen = 0 if caches is None else caches[0][0].shape[2]
        places = torch.arange(seen, seen + tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.places(places)
        new = []
        for number, block in enumerate(self.blocks):
            x, cache = block(x, None if caches is None else caches[number])
            new.append(cache)
        return self.last(x[:, -1:]) @ self.tokens.weight.T, new


clock = harness.Clock(f"gpt2_{options.precision}", options)
kind = torch.float16 if options.precision == "fp16" else torch.float32
model = Gpt2().cuda().to(kind).eval()
assert sum(p.numel() for p in model.parameters()) == 124_439_808, "this is not GPT-2 small"
prompt = torch.randint(0, VOCABULARY, (1, PROMPT)).cuda()
# With random weights the likeliest token is the one just read: that one is excluded, and noise keeps others from taking turns.
noise = torch.randn(61, VOCABULARY).cuda()
caches, tokens, written = None, prompt, []


def step() -> None:
    """One token: its number is read by the host, as generation does to see whether the text has ended."""
    global caches, tokens
    if caches is not None and caches[0][0].shape[2] >= CONTEXT - 1:
        caches, tokens = None, prompt
    logits, caches = model(tokens, caches)
    scores = (logits[:, -1].float() + noise[len(written) % len(noise)]).scatter(1, tokens[:, -1:], float("-inf"))
    tokens = scores.argmax(-1, keepdim=True)
    written.append(tokens.item())


with torch.inference_mode():
    clock.run(step, torch.cuda.synchronize)
    results = harness.Results()
    results.add(written)
    results.add(model(prompt, None)[0].float().cpu().numpy())
assert len(set(written)) > 10, f"the tokens repeat: {written}"
clock.report(results, precision=options.precision)
