"""Tables of calls of the runtime library. Calls that CUDA 13 renamed have the name of CUDA 12 with its `_v2`, which differ.c drops."""

from __future__ import annotations

import random

from sequence import Group, Sequence

# Memory, and questions about it.
MEMORY = """
4 cudaMalloc &<new m> <size>
1 cudaMallocManaged &<new v> <size> <1|1|2|1|0|3>
1 cudaHostAlloc &<new n> <size> <0|0|2|1|3|8>
1 cudaMallocHost &<new n> <size>
1 cudaMallocPitch &<new m> @q <size> <1|2/0>
1 cudaMalloc3D {q:0,q:0,q:0,q:0} (q:64,q:2,q:<1|2/0>) ; take <sized m 64> 0
1 cudaMalloc<<Host|> NULL <0|4>|Pitch NULL <@q|NULL> 64 1|Managed NULL 4 1>
1 host <new h> <size 64>
1 cudaFree <<end m>|<end m>|<end v>/NULL|<pick nh>>
1 cudaFreeHost <<end n>|<end n>/NULL|<pick mh>>
2 cudaPointerGetAttributes {d:77,d:77,q:1,q:1,z:64} <inside mvnh>
1 cudaHostGetDevicePointer <@p <pick n 5>|@?8 <pick h 5>> <0/1>
1 cudaHostGetFlags @d <pick nh 5>
1 cudaHostRegister <whole h> <0|1|2|3|8>
1 cudaHostUnregister <pick h 5>
"""

UP, DOWN, OVER, ANY = "<1|1|4/0|2|3|5>", "<2|2|4/0|1|3|-1>", "<3|3|4/0|1|2>", "<4|4|4/7>"
FLAT = "<64|128|64/0|3> <4|16|64/0|128> <1|2|4/0>"

# Copies and fills that wait, and that do not.
COPIES = f"""
2 cudaMemcpy <sync><place mv> <place hn> <count> {UP}
2 cudaMemcpy <sync><place hn> <place mv> <count> {DOWN}
2 cudaMemcpy <sync><place mv> <place mv> <count> {OVER}
2 cudaMemcpy <sync><place mvhn> <place mvhn> <count> {ANY}
2 cudaMemcpyAsync <place mv> <place hn> <count> {UP} <stream>
2 cudaMemcpyAsync <place hn> <place mv> <count> {DOWN} <stream>
2 cudaMemcpyAsync <place mv> <place mv> <count> {OVER} <stream>
2 cudaMemcpyAsync <place mvhn> <place mvhn> <count> {ANY} <stream>
1 cudaMemcpyPeer <sync><place m> <device> <place m> <device> <count>
1 cudaMemcpyPeerAsync <place m> <device> <place m> <device> <count> <stream>
2 cudaMemset <sync><place mv> <0|7|255|-1|65535> <count>
2 cudaMemsetAsync <place mv> <0|7|255|-1|65535> <count> <stream>
1 cudaMemset2D <sync><place mv 512> {FLAT.replace(" ", " 9 ", 1)}
1 cudaMemset2DAsync <place mv 512> {FLAT.replace(" ", " 9 ", 1)} <stream>
1 cudaMemset3D <sync>(q:<place mv 1024>,q:<64/0|2>,q:64,q:4) 9 (q:<4|16|64/0|128>,q:<1|2|4/0|8>,q:<1|2/0>)
1 cudaMemset3DAsync (q:<place mv 1024>,q:<64/0|2>,q:64,q:4) 9 (q:<4|16|64/0|128>,q:<1|2|4/0|8>,q:<1|2/0>) <stream>
1 cudaMemcpy2D <sync><place mv 512> 64 <place hn 512> {FLAT} {UP}
1 cudaMemcpy2D <sync><place hn 512> 64 <place mv 512> {FLAT} {DOWN}
1 cudaMemcpy2DAsync <place mv 512> <64/0> <place mv 512> {FLAT} {OVER} <stream>
1 cudaMemcpy2DAsync <place mvhn 512> <64/0> <place mvhn 512> {FLAT} {ANY} <stream>
1 cudaMemcpy3D <sync><box>
1 cudaMemcpy3DAsync <box> <stream>
"""

# Streams and events.
STREAMS = """
1 cudaStreamCreate &<new s>
2 cudaStreamCreateWithFlags &<new s> <0|1|1|1/2>
1 cudaStreamCreateWithPriority &<new s> <0|1> <0|-1|1|-100>
1 cudaStreamDestroy <end s>
1 cudaStreamSynchronize <stream>
1 cudaStreamQuery <stream>
1 cudaStreamGetFlags <stream> <@d/NULL>
1 cudaStreamGetPriority <stream> <@d/NULL>
1 cudaStreamGetId <stream> <@#8/NULL>
1 cudaStreamAttachMemAsync <stream> <pick v> 0 <1|2|4/0>
1 cudaEventCreate &<new e>
2 cudaEventCreateWithFlags &<new e> <0|0|2|1|3/4|8>
1 cudaEventDestroy <end e>
2 cudaEventRecord <pick e> <stream>
1 cudaEventRecordWithFlags <pick e> <stream> <0|1/2>
1 cudaEventQuery <pick e>
1 cudaEventSynchronize <pick e>
1 cudaStreamWaitEvent <stream> <pick e> <0/2>
1 cudaEventElapsedTime <@?4/NULL> <pick e> <pick e>
"""

# Launches, functions of the application, and waits.
WORK = """
4 cudaLaunchKernel <launch>
1 cudaLaunchKernelExC <launch ex>
1 cudaLaunchCooperativeKernel <launch>
1 cudaLaunchHostFunc <stream> <$host/NULL> <below 9>
1 cudaStreamAddCallback <stream> <$stream/NULL> <below 9> <0/1>
1 cudaDeviceSynchronize
1 cudaDeviceSynchronize ; fill <some h 0> <below 256>
"""

# Each thread's last error.
ERRORS = """
2 cudaGetLastError
2 cudaPeekAtLastError
1 cudaGetErrorName <0|1|2|201|400|719|900|12345>
1 cudaGetErrorString <0|1|2|3|201|600|700|905|12345>
1 cudaMalloc <&<new m>/NULL> <1152921504606846976|0>
1 cudaFree <<pick h>|<pick h>|<end m>>
1 cudaSetDevice <-1|99|4096>
1 cudaEventRecord NULL <stream>
"""

POOL = "d:1,d:0,d:1,d:0,q:0,q:0,w:0,z:54"

# Memory in the order of streams.
POOLS = f"""
2 cudaMallocAsync &<ordered>
1 cudaFreeAsync <end m> <stream>
1 cudaMemPoolCreate &<new p> {{{POOL}}}
1 cudaMallocFromPoolAsync &<new m> <size> <some p> <stream> ; cudaDeviceSynchronize
1 cudaMemPoolDestroy <end p>
1 cudaMemPoolGetAttribute <pick p 5> <<4|6|8> @q|<1|2|3|0|99> @d>
1 cudaMemPoolSetAttribute <pick p 5> <1|2|3|4|6|8> {{q:<0|1|65536>}}
1 cudaMemPoolTrimTo <pick p 5> <0|65536>
1 cudaDeviceGetDefaultMemPool <@p/NULL> <device>
1 cudaDeviceGetMemPool <@p/NULL> <device>
"""

# The device of a thread.
DEVICES = """
2 cudaSetDevice <device>
2 cudaGetDevice <@d/NULL>
1 cudaGetDeviceCount <@d/NULL>
1 cudaDeviceGetAttribute @d <1|2|10|41|75|86|0|400|99999> <device>
1 cudaGetDeviceProperties_v2 {z:288,q:1,q:1,d:1,d:1,q:1,d:1,d:1,d:1,d:1,d:1,d:1,d:1,z:4,q:1,d:99,d:99,z:700} <device>
1 cudaDeviceGetLimit <@q/NULL> <0|1|2|99>
1 cudaDeviceSetLimit <0|2|99> <1024|4096>
1 cudaDeviceGetStreamPriorityRange <@d|NULL> <@d|NULL>
1 cudaDeviceCanAccessPeer <@d/NULL> <device> <device>
1 cudaDeviceEnablePeerAccess <device> <0/1>
1 cudaDeviceDisablePeerAccess <device>
1 cudaGetDeviceFlags <@d/NULL>
1 cudaSetDeviceFlags <0|1|4|8/99>
1 cudaInitDevice <device> 0 0
1 cudaDriverGetVersion <@?4/NULL>
1 cudaRuntimeGetVersion <@?4/NULL>
1 cudaMemGetInfo <@?8/NULL> <@?8/NULL>
"""

NAME = '<"add_one"|"scale"|"other"|"missing"|""|NULL>'

# Libraries and kernels.
LIBRARIES = f"""
1 cudaLibraryLoadData &<new l> <$small|$small|$small|$broken|$garbage|NULL> NULL NULL 0 NULL NULL 0
1 cudaLibraryUnload <end l>
1 cudaLibraryGetKernel &<brief r> <l99|<pick l>> {NAME}
1 cudaLibraryGetKernelCount <@d/NULL> <l99|<pick l>>
1 cudaLibraryEnumerateKernels @p4 <0|1|4> <l99|<pick l>>
1 cudaLibraryGetGlobal <@p|@p|NULL> <@q|@q|NULL> l99 <"table"|"fixed"|"missing"|NULL>
1 cudaLibraryGetManaged @p @q l99 <"table"|"missing"|NULL>
2 cudaFuncGetAttributes {{q:9,q:9,q:9,d:9,d:9,d:9,d:9,d:9,d:9,d:9,z:84}} <function r>
1 cudaFuncSetAttribute <function r> <8|9|0|99> <0|1024|-1|50>
1 cudaFuncSetCacheConfig <function r> <0|1|2|3|9>
1 cudaFuncGetName @z <function r>
1 cudaFuncGetParamInfo <function r> <0|1|2|9> @q <@q|NULL>
2 cudaOccupancyMaxActiveBlocksPerMultiprocessor <@d/NULL> <function r> <32|64|1024/0|4096> <0|1024/268435456>
1 cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags @d <function r> <32|64> 0 <0|1/9>
1 cudaOccupancyAvailableDynamicSMemPerBlock @q <function r> <1|2/0> <32|64/0>
1 cudaGetSymbolAddress @p <NULL|4096>
1 cudaGetFuncBySymbol @p <NULL|<function r>>
"""

# Capturing of streams.
CAPTURES = """
2 cudaStreamBeginCapture <begin> <0|1|2|2|2/3>
1 cudaStreamBeginCaptureToGraph <begin> <pick gy> NULL NULL 0 <0|1|2>
3 cudaStreamEndCapture <finish> <&<new g>/NULL>
1 cudaStreamIsCapturing <stream> <@d/NULL>
1 cudaStreamGetCaptureInfo_v3 <capturing> @d <@#8/NULL> <@p/NULL> <@?8/NULL> NULL <@q/NULL>
1 cudaStreamUpdateCaptureDependencies_v2 <capturing> <nodes NULL> <0|1|2>
1 cudaThreadExchangeStreamCaptureMode {d:<0|1|2|2/3>}
1 cudaEventRecordWithFlags <pick e> <capturing> <0|1>
"""

# Graphs: making, asking, changing.
GRAPHS = f"""
4 cudaGraphAddKernelNode &<new k> <graph> <nodes> <kernel>
1 cudaGraphAddMemcpyNode &<new k> <graph> <nodes> <box>
1 cudaGraphAddMemcpyNode1D &<new k> <graph> <nodes> <place mv> <place mvh> <count> {ANY}
2 cudaGraphAddMemsetNode &<new k> <graph> <nodes> <filling>
1 cudaGraphAddHostNode &<new k> <graph> <nodes> {{q:<$host|$host|NULL>,q:3}}
1 cudaGraphAddChildGraphNode &<new k> <graph> <nodes> <pick g>
2 cudaGraphAddEmptyNode &<new k> <graph> <nodes>
2 cudaGraphAddEvent<Record|Wait>Node &<new k> <graph> <nodes> <pick e>
1 cudaGraphAddMemAllocNode &<new k> <graph> <nodes> {{{POOL},q:NULL,q:0,q:<size>,q:0}}
1 cudaGraphAddMemFreeNode &<new k> <graph> <nodes> <pick ma>
3 cudaGraphGet<Nodes|RootNodes> <graph> <<room>/NULL NULL>
1 cudaGraphGetEdges_v2 <graph> <NULL NULL NULL {{q:<0|1|8>}}|@p8 @p8 @b64 {{q:<0|1|2|8>}}|@p2 @p2 NULL {{q:2}}|@p8 NULL NULL {{q:8}}>
2 cudaGraphNodeGet<Dependencies|DependentNodes>_v2 <node> <NULL NULL {{q:<0|1>}}|@p8 NULL {{q:<0|1|8>}}|@p8 @b64 {{q:8}}/NULL NULL NULL>
1 cudaGraphNodeGetType <node> <@d/NULL>
1 cudaGraphClone &<new g> <graph>
1 cudaGraphNodeFindInClone @p <node> <pick g>
2 cudaGraph<Add|Remove>Dependencies_v2 <graph> {{q:<node>}} {{q:<node>}} NULL <1|1|0>
1 cudaGraphDestroyNode <end k>
1 cudaGraphDestroy <end g>
3 cudaGraphInstantiate<|WithFlags> &<new x> <graph> <0|0|0|1|2|8|99>
4 cudaGraph<asked>
3 cudaGraph<change>
1 cudaGraphConditionalHandleCreate &<conditional> <graph> <0|1> <0|1> ; cudaGraphAddNode_v2 &<new k> <graph> <nodes NULL> <body> ; body <new y> 7
1 cudaGraphAddNode_v2 &<new k> <graph> <nodes NULL> {{d:<5|5|77|11>,z:252}}
1 cudaGraphExecUpdate <executable> <graph> {{d:0,q:0,q:0}}
"""
ASKED = """<KernelNodeGetParams <node Kernel> <@?56/NULL>|MemsetNodeGetParams <node Memset> <@p5/NULL>|HostNodeGetParams <node Host> <@p2/NULL>\
|MemcpyNodeGetParams <node Memcpy> <@?160/NULL>|MemAllocNodeGetParams <node MemAlloc> <@?120/NULL>|MemFreeNodeGetParams <node MemFree> <@p/NULL>\
|EventRecordNodeGetEvent <node EventRecord> <@p/NULL>|EventWaitNodeGetEvent <node EventWait> <@p/NULL>\
|ChildGraphNodeGetGraph <node ChildGraph> <@p/NULL>>"""
CHANGE = f"""<HostNodeSetParams <node Host> <{{q:$host,q:5}}/NULL|{{q:NULL,q:5}}>|EventRecordNodeSetEvent <node EventRecord> <pick e 10>\
|EventWaitNodeSetEvent <node EventWait> <pick e 10>|KernelNodeCopyAttributes <node Kernel> <node Kernel>\
|KernelNodeSetParams <node Kernel> <<kernel>/NULL>|MemsetNodeSetParams <node Memset> <<filling>/NULL>\
|MemcpyNodeSetParams <node Memcpy> <<box>/NULL>|MemcpyNodeSetParams1D <node Memcpy> <place mv> <place mv> <count> {ANY}>"""

# Graphs that were made executable.
EXECUTABLES = f"""
4 cudaGraphLaunch <executable> <stream>
1 cudaGraphUpload <executable> <stream>
1 cudaGraphExecDestroy <end x>
1 cudaGraphExecKernelNodeSetParams <executable> <node Kernel> <kernel>
1 cudaGraphExecMemsetNodeSetParams <executable> <node Memset> <filling>
1 cudaGraphNodeSetEnabled <executable> <node> <0|1>
1 cudaGraphNodeGetEnabled <executable> <node> <@d/NULL>
1 cudaGraphExecMemcpyNodeSetParams <executable> <node Memcpy> <<box>/NULL>
1 cudaGraphExecMemcpyNodeSetParams1D <executable> <node Memcpy> <place mv> <place mv> <count> {ANY}
1 cudaGraphExecHostNodeSetParams <executable> <node Host> <{{q:$host,q:7}}/NULL>
1 cudaGraphExecGetFlags <executable> <@q/NULL>
"""

# Calls about a thread's own state.
THREADS = """
2 cudaGetLastError
2 cudaPeekAtLastError
1 cudaGetDevice @d
1 cudaSetDevice <device>
1 cudaMalloc &<new m> <<size>/1152921504606846976>
1 cudaFree <<end m>/<pick h>>
1 cudaEventRecord NULL <own>
2 cudaThreadExchangeStreamCaptureMode {d:<0|1|2>}
2 cudaStreamBeginCapture <begin> <0|1|1|2>
2 cudaStreamEndCapture <finish> &<new g>
1 cudaMemsetAsync <place mv> 7 <count> <own>
1 cudaMemcpyAsync <place mvhn> <place mvhn> <count> 4 <own>
1 cudaEventRecord <pick e> <own>
1 cudaStreamWaitEvent <own> <pick e> 0
1 cudaStreamSynchronize <own>
1 cudaEventQuery <pick e>
1 cudaDeviceSynchronize
"""

GRAPH = Group(GRAPHS, 6, "g", "cudaGraphCreate &<new g> <0/1>")


class Runtime(Sequence):
    """A sequence of the runtime library's calls."""

    PROLOGUE = """sequence prologue
cuInit 0
cudaSetDevice 0
cudaFree NULL
cuCtxGetCurrent &c99
cudaStreamCreateWithFlags &s99 1
cudaLibraryLoadData &l99 $ptx NULL NULL 0 NULL NULL 0
cudaLibraryGetKernel &r90 l99 "add_one"
cudaLibraryGetKernel &r91 l99 "scale"
cudaLibraryGetKernel &r92 l99 "nothing"
cudaLibraryGetKernel &r93 l99 "shares"
cudaLibraryGetGlobal &a90:64 @q l99 "table"
end
"""
    SECOND = """cudaSetDevice 1
cudaFree NULL
cuCtxGetCurrent &c97
cudaStreamCreateWithFlags &s98 1
cudaSetDevice 0
"""
    GROUPS = [
        Group(MEMORY, 5),
        Group(COPIES, 6),
        Group(STREAMS, 5),
        Group(WORK, 5),
        Group(ERRORS, 3),
        Group(POOLS, 2),
        Group(DEVICES, 2),
        Group(LIBRARIES, 2),
        Group(CAPTURES, 3, "C", "cudaStreamBeginCapture <begin> <0|1|2|2|2/3>"),
        GRAPH,
        Group(EXECUTABLES, 3, "x", GRAPH),
    ]
    BASIS = ["cudaMalloc &<sized m> 4096", "host <sized h> 4096", "cudaStreamCreateWithFlags &<new s> 1"]
    THREADS = Group(THREADS, 5)
    THREAD = "cudaGetDevice @d"
    MORE = ["cudaMalloc &<sized m> 4096", "cudaEventCreateWithFlags &<new e> <0|2>", "cudaStreamCreate &<new s>"]
    EARLY = [
        "cudaGetDeviceCount @d",
        "cudaGetDevice @d",
        "cudaSetDevice 0",
        "cudaSetDevice 99",
        "cudaDeviceSynchronize",
        "cudaMalloc &m0 64",
        "cudaFree NULL",
        "cudaFree m0",
        "cudaStreamCreate &s0",
        "cudaStreamSynchronize NULL",
        "cudaEventCreate &e0",
        "cudaLibraryLoadData &l0 $small NULL NULL 0 NULL NULL 0",
        "cudaGraphCreate &g0 0",
        "cudaMallocHost &n0 64",
        "cudaMemcpy NULL NULL 0 4",
        "cudaMemset m0 0 64",
        "cudaPointerGetAttributes {d:77,d:77,q:1,q:1,z:64} m0",
        "cudaDriverGetVersion @?4",
        "cudaRuntimeGetVersion @?4",
        "cudaDeviceGetAttribute @d 10 0",
        "cudaSetDeviceFlags 4",
        "cudaGetDeviceFlags @d",
        "cudaGetLastError",
        "cudaPeekAtLastError",
        "cudaProfilerStart",
        "cudaLaunchKernel NULL (d:1,d:1,d:1) (d:1,d:1,d:1) NULL 0 NULL",
        "cudaThreadExchangeStreamCaptureMode {d:2}",
        "cuCtxGetCurrent @p",
        "cuCtxGetDevice @d",
    ]
    WAIT = "cudaStreamSynchronize"

    @classmethod
    def early(cls, rng: random.Random) -> list[str]:
        """Calls before any other, and behind a reset, which ends all there is."""
        lines = cls.some_early(rng, 10)
        for _ in range(rng.choice([0, 1, 1, 2])):
            lines += ["cudaDeviceReset", *cls.some_early(rng, 10)]
        return lines

    def launch(self, form: str = "") -> str:
        function, (*shape, shared) = self.function("r"), self.shape()
        if form:
            shown = ",".join(f"d:{value}" for value in shape)
            return f"{{{shown},q:{shared},q:{self.stream()},q:NULL,d:0}} {function} {self.params(function)}"
        grid, block = (",".join(f"d:{value}" for value in three) for three in (shape[:3], shape[3:]))
        return f"{function} ({grid}) ({block}) {self.params(function)} {shared} {self.stream()}"

    def kernel(self) -> str:
        """cudaKernelNodeParams."""
        if self.chance(0.04):
            return "NULL"
        function = self.function("r")
        shown = ",".join(f"d:{value}" for value in self.shape())
        return f"{{q:{function},{shown},q:{self.params(function)},q:NULL}}"

    def box(self) -> str:
        """cudaMemcpy3DParms."""
        rng = self.rng
        width, height, depth = rng.choice([4, 16, 64]), rng.choice([1, 2, 4]), rng.choice([1, 2])
        pitch = rng.choice([64, 128])
        if self.chance(0.06):
            width, height, pitch = rng.choice([(0, 1, 64), (64, 0, 64), (128, 2, 64), (16, 2, 0)])
        kinds = rng.choice(["hm", "mh", "mm", "xx", "xx"])
        kind = {"hm": 1, "mh": 2, "mm": 3, "xx": 4}[kinds] if self.chance(0.95) else rng.choice([0, 1, 2, 3, 9])
        sides = []
        for side in kinds:
            memory = self.place({"h": "hn", "m": "mv", "x": "mvhn"}[side], str(pitch * height * depth + 64))
            sides.append(f"q:NULL,q:{rng.choice([0, 0, 4])},q:0,q:0,q:{memory},q:{pitch},q:{pitch},q:{height}")
        return "{" + ",".join(sides) + f",q:{width},q:{height},q:{depth},d:{kind}" + "}"

    def body(self) -> str:
        return self.expand(f"{{d:13,d:0,d:0,d:0,q:{self.line_handle},d:<0|0|2|9>,d:<1|1|2|0>,q:NULL,z:208,q:0}}")

    def asked(self) -> str:
        return self.expand(ASKED)

    def change(self) -> str:
        return self.expand(CHANGE)
