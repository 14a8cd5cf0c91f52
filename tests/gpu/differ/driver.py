"""Tables of the CUDA driver's calls."""

from __future__ import annotations

import random

from sequence import Group, Sequence

# Memory, and questions about it.
MEMORY = """
4 cuMemAlloc_v2 &<new m> <size>
1 cuMemAllocManaged &<new v> <size> <1|1|2|1|0|3>
1 cuMemHostAlloc &<new n> <size> <0|0|2|1|3|8>
1 cuMemAllocHost_v2 &<new n> <size>
1 host <new h> <size 64>
1 cuMemFree_v2 <<end m>|<end m>|<end v>>
1 cuMemFreeHost <end n>
1 cuMemGetAddressRange_v2 @p @q <inside mvn>
1 cuPointerGetAttribute <@d <2|8|9|10|13|14|16>|@p <1|3|4|11|12|17|0|99>> <pick mvnh 5>
1 cuMemHostGetDevicePointer_v2 <@p <pick n 5>|@?8 <pick h 5>> <0/1>
1 cuMemHostGetFlags @d <pick nh 5>
1 cuMemHostRegister_v2 <whole h> <0|1|2|3>
1 cuMemHostUnregister <pick h 5>
"""

# Copies and fills that wait, and that do not.
COPIES = """
2 cuMemcpyHtoD_v2 <sync><place mv> <<place hn>/<place m>> <count>
2 cuMemcpyDtoH_v2 <sync><<place hn>/<place m>> <place mv> <count>
2 cuMemcpyDtoD_v2 <sync><place mv> <place mv> <count>
2 cuMemcpy <sync><place mvhn> <place mvhn> <count>
2 cuMemcpyHtoDAsync_v2 <place mv> <place hn> <count> <stream>
2 cuMemcpyDtoHAsync_v2 <place hn> <place mv> <count> <stream>
2 cuMemcpyDtoDAsync_v2 <place mv> <place mv> <count> <stream>
2 cuMemcpyAsync <place mvhn> <place mvhn> <count> <stream>
1 <cuMemsetD8_v2 <sync><place mv> <0|7|255> <count>|cuMemsetD8Async <place mv> <0|7|255> <count> <stream>>
1 <cuMemsetD16_v2 <sync><place mv> <7|65535> <count 2>|cuMemsetD16Async <place mv> <7|65535> <count 2> <stream>>
1 <cuMemsetD32_v2 <sync><place mv> <7|65535> <count 4>|cuMemsetD32Async <place mv> <7|65535> <count 4> <stream>>
1 cuMemsetD2D<8|16|32>_v2 <sync><place mv 256> <64|64/0|2> 9 <1|4|16> <1|2|4>
1 cuMemsetD2D<8|16|32>Async <place mv 256> <64|64/0|2> 9 <1|4|16> <1|2|4> <stream>
2 cuMemcpy2D<|Unaligned>_v2 <sync><box>
2 cuMemcpy2DAsync_v2 <box> <stream>
2 cuMemcpy3D_v2 <sync><box deep>
2 cuMemcpy3DAsync_v2 <box deep> <stream>
"""

# Streams and events.
STREAMS = """
2 cuStreamCreate &<new s> <0|1|1|1/2>
1 cuStreamCreateWithPriority &<new s> <0|1> <0|-1|1|-100>
1 cuStreamDestroy_v2 <end s>
1 cuStreamSynchronize <stream>
1 cuStreamQuery <stream>
1 cuStreamGetFlags <stream> @d
1 cuStreamGetPriority <stream> <@d/NULL>
1 cuStreamGetCtx <stream> @p
1 cuStreamGetId <stream> @#8
2 cuEventCreate &<new e> <0|0|2|1|3/4|8>
1 cuEventDestroy_v2 <end e>
2 cuEventRecord <pick e> <stream>
1 cuEventQuery <pick e>
1 cuEventSynchronize <pick e>
1 cuStreamWaitEvent <stream> <pick e> <0/2>
1 cuEventElapsedTime <@?4/NULL> <pick e> <pick e>
"""

# Launches, functions of the application, and waits.
WORK = """
4 cuLaunchKernel <launch>
1 cuLaunchKernelEx <launch ex>
1 cuLaunchHostFunc <stream> <$host/NULL> <below 9>
1 cuStreamAddCallback <stream> <$stream/NULL> <below 9> <0/1>
1 cuCtxSynchronize
1 cuStreamWriteValue<32|64>_v2 <stream> <place m 64> <below 99> <0|0|1>
1 cuCtxSynchronize ; fill <some h 0> <below 256>
"""

POOL = "d:1,d:0,d:1,d:0,q:0,q:0,w:0,z:54"

# Memory in the order of streams.
POOLS = f"""
2 cuMemAllocAsync &<ordered>
1 cuMemFreeAsync <end m> <stream>
1 cuMemPoolCreate &<new p> {{{POOL}}}
1 cuMemAllocFromPoolAsync &<new m> <size> <some p> <stream> ; cuCtxSynchronize
1 cuMemPoolDestroy <end p>
1 cuMemPoolGetAttribute <pick p 5> <<4|6|8> @q|<1|2|3|0|99> @d>
1 cuMemPoolSetAttribute <pick p 5> <1|2|3|4|6|8> {{q:<0|1|65536>}}
"""

# Contexts and the device.
CONTEXTS = """
2 cuCtxPushCurrent_v2 <context>
1 cuCtxPopCurrent_v2 @p ; cuCtxGetCurrent @p
2 cuCtxSetCurrent <<context>/NULL>
1 cuCtxSetCurrent NULL ; cuCtxSetCurrent c99
1 cuCtxCreate_v2 &<new c> <0|0|4/99> <device>
1 cuCtxDestroy_v2 <<end c>/NULL>
1 cuDevicePrimaryCtxRetain <@p/NULL> <device>
1 cuDevicePrimaryCtxRetain @p 0 ; cuDevicePrimaryCtxRelease_v2 0
1 cuDevicePrimaryCtxGetState <device> <@d/NULL> <@d/NULL>
1 cuDeviceCanAccessPeer <@d/NULL> <device> <device>
1 cuCtxEnablePeerAccess <<context>/NULL> <0/1>
1 cuCtxDisablePeerAccess <<context>/NULL>
1 cuMemcpyPeer <sync><place m> <<context>/NULL> <place m> <<context>/NULL> <count>
1 cuMemcpyPeerAsync <place m> <context> <place m> <<context>/NULL> <count> <stream>
1 cuCtxSynchronize
1 cuCtxGetCurrent @p
1 cuCtxGetDevice @d
1 cuCtxGetApiVersion <<context>/NULL> @?4
1 cuCtxGetStreamPriorityRange <@d|NULL> <@d|NULL>
1 cuCtxGetFlags @d
1 cuDeviceGetAttribute @?4 <1|2|10|41|75|86|0|400|99999> <device>
1 cuDeviceGet @d <0|0|-1|99>
1 cuGetErrorName <0|1|2|201|400|719|900|12345> @z
1 cuGetErrorString <0|1|2|3|201|600|700|905|12345> @z
"""

NAME = '<"add_one"|"scale"|"other"|"missing"|""|NULL>'

# Modules, libraries and functions.
MODULES = f"""
1 cuModuleLoadData &<new d> <$small|$small|$small|$broken|$garbage|NULL>
1 cuModuleUnload <end d>
1 cuModuleGetFunction &<brief f> <d99|<pick d>> {NAME}
1 cuModuleGetGlobal_v2 <@p|@p|NULL> <@q|@q|NULL> d99 <"table"|"fixed"|"missing"|NULL>
1 cuFuncGetAttribute @<d|?4> <0|1|8|9|99> <function f>
1 cuFuncSetAttribute <function f> <8|9|0|99> <0|1024|-1|50>
1 cuFuncGetModule @p <function f>
1 cuFuncGetName @z <function f>
1 cuFuncGetParamInfo <function f> <0|1|2|9> @q <@q|NULL>
1 cuLibraryLoadData &<new l> <$small|$broken|NULL> NULL NULL 0 NULL NULL 0
1 cuLibraryGetKernel &<new r> <some l> {NAME}
1 cuModuleGetFunctionCount @d <d99|NULL>
"""

# Capturing of streams.
CAPTURES = """
3 <cuStreamBeginCapture_v2 <begin>|cuStreamBeginCapture_v2 <begin>|cuStreamBeginCaptureToGraph <begin> <pick gy> NULL NULL 0> <0|1|2|2|2/3>
3 cuStreamEndCapture <finish> <&<new g>/NULL>
1 cuStreamIsCapturing <stream> <@d/NULL>
1 cuStreamGetCaptureInfo_v2 <capturing> @d <@#8/NULL> <@p/NULL> <@?8/NULL> <@q/NULL>
1 cuStreamUpdateCaptureDependencies <capturing> <nodes> <0|1|2>
1 cuThreadExchangeStreamCaptureMode {d:<0|1|2|2>}
1 cuEventRecordWithFlags <pick e> <capturing> <0|1>
"""

AT = "<<capturing>|<stream>>"

# Calls of all kinds in the order of a stream, most of the time one that is captured.
ORDERED = f"""
3 cuEventRecordWithFlags <pick e> {AT} <0|0|1>
3 cuStreamWaitEvent {AT} <pick e> <0|0|1>
1 cuStreamBatchMemOp_v2 {AT} <1|1|1|0> {{d:<2|2|5|5|3|6|77>,q:<place m 64>,q:7,d:<0/1>,z:20}} <0/1>
1 cuStreamWriteValue<32|64>_v2 {AT} <place m 64> 5 <0|0|1>
1 cuMemcpyPeerAsync <place m> c99 <place m> c99 <count> {AT}
1 cuMemcpyBatchAsync {{q:<place mh>}} {{q:<place mh>}} {{q:<count>}} 1 {{d:1,z:20}} {{q:0}} 1 @q {AT}
1 cuMemPrefetchAsync <place v> <count> <0|-1> {AT}
1 cuStreamAttachMemAsync {AT} <pick v> 0 <1|2|4|0>
1 cuGraphLaunch <pick x> {AT}
1 cuGraphUpload <pick x> {AT}
1 cuMemAllocAsync &<sized a 64> 64 {AT}
1 cuMemFreeAsync <pick a> {AT}
1 cuStreamGet<Flags|Priority|Device> {AT} @d
1 <cuStreamGetId {AT} @#8|cuStreamGetCtx {AT} @p|cuStreamGetCtx_v2 {AT} @p @p>
1 cuStreamGetAttribute {AT} <1|3|8|10> @?64
1 cuStreamSetAttribute {AT} <3|10> {{d:<0|1>,z:60}}
1 cuStreamCopyAttributes {AT} <stream>
1 <cuStreamGetCaptureInfo {AT} @d @#8|cuStreamGetCaptureInfo_v3 {AT} @d @#8 @p @?8 @?8 @q|cuStreamIsCapturing {AT} @d>
1 <cuStreamSynchronize {AT}|cuStreamQuery {AT}|cuStreamAddCallback {AT} $stream 3 0>
1 <cuMemGetInfo_v2 @?8 @?8|cuCtxSynchronize|cuEventQuery <pick e>|cuMemPoolTrimTo <pick p> 0>
1 <cuLibraryUnload <end l>|cuModuleUnload <end d>|cuMemFreeHost <end n>|cuMemFree_v2 <end m>>
"""

# Graphs: making, asking, changing.
GRAPHS = f"""
3 cuGraphAddKernelNode_v2 &<new k> <graph> <nodes> <kernel 2>
1 cuGraphAddKernelNode &<new k> <graph> <nodes> <kernel 1>
2 cuGraphAddMemcpyNode &<new k> <graph> <nodes> <box deep> <c99|c99|NULL>
2 cuGraphAddMemsetNode &<new k> <graph> <nodes> <filling> <c99|c99|NULL>
1 cuGraphAddHostNode &<new k> <graph> <nodes> {{q:<$host|$host|NULL>,q:3}}
1 cuGraphAddChildGraphNode &<new k> <graph> <nodes> <pick g>
3 cuGraph<change>
2 cuGraphAddEmptyNode &<new k> <graph> <nodes>
1 cuGraphAddEvent<Record|Wait>Node &<new k> <graph> <nodes> <pick e>
1 cuGraphAddEvent<Record|Wait>Node &<new k> <graph> <nodes> <pick e>
1 cuGraphAddMemAllocNode &<new k> <graph> <nodes> {{{POOL},q:NULL,q:0,q:<size>,q:0}}
1 cuGraphAddMemFreeNode &<new k> <graph> <nodes> <pick ma>
3 cuGraphGet<Nodes|RootNodes> <graph> <<room>/NULL NULL>
1 cuGraphGetEdges <graph> <NULL NULL {{q:<0|1|8>}}|@p8 @p8 {{q:<0|1|2|8>}}|@p2 @p2 {{q:<0|2>}}|@p8 NULL {{q:8}}|NULL @p8 {{q:8}}>
2 cuGraphNodeGet<Dependencies|DependentNodes> <node> <room>
1 cuGraphNodeGetType <node> <@d/NULL>
1 cuGraphClone &<new g> <graph>
1 cuGraphNodeFindInClone @p <node> <graph>
1 cuGraphAddDependencies <graph> {{q:<node>}} {{q:<node>}} <1|1|0>
1 cuGraphRemoveDependencies <graph> {{q:<node>}} {{q:<node>}} <1|1|0>
1 cuGraphDestroyNode <end k>
1 cuGraphDestroy <end g>
3 cuGraphInstantiateWithFlags &<new x> <graph> <0|0|0|1|2|8|99>
1 cuGraphInstantiate_v2 &<new x> <graph> <@p|NULL> NULL 0
1 cuGraphKernelNodeSetParams<_v2 <node Kernel> <kernel 2>| <node Kernel> <kernel 1>>
1 cuGraphMemsetNodeSetParams <node Memset> <<filling>/NULL>
1 cuGraphMemcpyNodeSetParams <node Memcpy> <<box deep>/NULL>
4 cuGraph<asked>
1 cuGraphConditionalHandleCreate &<conditional> <graph> c99 <0|1> <0|1> ; cuGraphAddNode &<new k> <graph> <nodes> <body> ; body <new y> 7
1 cuGraphAddNode &<new k> <graph> <nodes> {{d:<5|5|77|11>,z:252}}
1 cuGraphChildGraphNodeGetGraph <node ChildGraph> @p
1 cuGraphExecUpdate_v2 <executable> <graph> {{d:0,q:0,q:0}}
1 cuGraphNodeGetContainingGraph <node> @p
"""

# Questions about nodes, and changes of them.
ASKED = """<KernelNodeGetParams_v2 <node Kernel> <@?72/NULL>|MemsetNodeGetParams <node Memset> <@p5/NULL>|HostNodeGetParams <node Host> <@p2/NULL>\
|MemcpyNodeGetParams <node Memcpy> <@?200/NULL>|MemAllocNodeGetParams <node MemAlloc> <@?120/NULL>|MemFreeNodeGetParams <node MemFree> <@p/NULL>\
|EventRecordNodeGetEvent <node EventRecord> <@p/NULL>|EventWaitNodeGetEvent <node EventWait> <@p/NULL>\
|ChildGraphNodeGetGraph <node ChildGraph> <@p/NULL>>"""
CHANGE = """<HostNodeSetParams <node Host> {q:$host,q:5}|EventRecordNodeSetEvent <node EventRecord> <pick e 10>\
|EventWaitNodeSetEvent <node EventWait> <pick e 10>\
|KernelNodeCopyAttributes <node Kernel> <pick k 10>|HostNodeSetParams <node Host> <NULL|{q:NULL,q:5}>>"""

# Graphs that were made executable.
EXECUTABLES = """
4 cuGraphLaunch <executable> <stream>
1 cuGraphUpload <executable> <stream>
1 cuGraphExecDestroy <end x>
1 cuGraphExecKernelNodeSetParams_v2 <executable> <node Kernel> <kernel 2>
1 cuGraphExecMemsetNodeSetParams <executable> <node Memset> <filling> c99
1 cuGraphNodeSetEnabled <executable> <node> <0|1>
1 cuGraphNodeGetEnabled <executable> <node> <@d/NULL>
1 cuGraphExecMemcpyNodeSetParams <executable> <node Memcpy> <<box deep>/NULL> c99
1 cuGraphExecHostNodeSetParams <executable> <node Host> <{q:$host,q:7}/NULL>
1 cuGraphExecGetFlags <executable> @q
"""


# Calls about a thread's own state.
THREADS = """
2 cuCtxGetCurrent @p
1 cuCtxSetCurrent <<context>/NULL>
2 cuThreadExchangeStreamCaptureMode {d:<0|1|2>}
2 cuStreamBeginCapture_v2 <begin> <0|1|1|2>
2 cuStreamEndCapture <finish> &<new g>
1 cuMemsetD8Async <place mv> 7 <count> <own>
1 cuMemcpyAsync <place mvhn> <place mvhn> <count> <own>
1 cuEventRecord <pick e> <own>
1 cuStreamWaitEvent <own> <pick e> 0
1 cuStreamSynchronize <own>
1 cuMemAlloc_v2 &<new m> <size>
1 cuMemFree_v2 <end m>
1 cuEventQuery <pick e>
1 cuCtxSynchronize
"""

GRAPH = Group(GRAPHS, 6, "g", "cuGraphCreate &<new g> <0/1>")


class Driver(Sequence):
    """A sequence of the driver's calls."""

    PROLOGUE = """sequence prologue
cuInit 0
cuDevicePrimaryCtxRetain &c99 0
cuCtxSetCurrent c99
cuStreamCreate &s99 1
cuModuleLoadData &d99 $ptx
cuModuleGetFunction &f90 d99 "add_one"
cuModuleGetFunction &f91 d99 "scale"
cuModuleGetFunction &f92 d99 "nothing"
cuModuleGetFunction &f93 d99 "shares"
cuModuleGetGlobal_v2 &a90:64 @q d99 "table"
cuCtxCreate_v2 &c98 0 0
cuCtxPopCurrent_v2 @p
end
"""
    SECOND = """cuDevicePrimaryCtxRetain &c97 1
cuCtxPushCurrent_v2 c97
cuStreamCreate &s98 1
cuCtxPopCurrent_v2 @p
"""
    GROUPS = [
        Group(MEMORY, 5),
        Group(COPIES, 6),
        Group(STREAMS, 5),
        Group(WORK, 5),
        Group(POOLS, 2),
        Group(CONTEXTS, 1),
        Group(MODULES, 2),
        Group(CAPTURES, 3, "C", "cuStreamBeginCapture_v2 <begin> <0|1|2|2|2/3>"),
        Group(ORDERED, 5, "C", "cuStreamBeginCapture_v2 <begin> <0|1|2|2|2/3>"),
        GRAPH,
        Group(EXECUTABLES, 3, "x", GRAPH),
    ]
    BASIS = ["cuMemAlloc_v2 &<sized m> 4096", "host <sized h> 4096", "cuStreamCreate &<new s> 1"]
    THREADS = Group(THREADS, 5)
    THREAD = "cuCtxSetCurrent <c99|c99|c99|c98/NULL>"
    MORE = ["cuMemAlloc_v2 &<sized m> 4096", "cuEventCreate &<new e> <0|2>", "cuStreamCreate &<new s> <0|1>"]
    EARLY = [
        "cuDeviceGetCount @d",
        "cuDeviceGet @d 0",
        "cuCtxGetCurrent @p",
        "cuCtxSynchronize",
        "cuMemAlloc_v2 &m0 64",
        "cuMemFree_v2 NULL",
        "cuStreamCreate &s0 0",
        "cuStreamSynchronize NULL",
        "cuEventCreate &e0 0",
        "cuModuleLoadData &d0 $small",
        "cuGraphCreate &g0 0",
        "cuDevicePrimaryCtxRetain &c0 0",
        "cuMemHostAlloc &n0 64 0",
        "cuMemcpy NULL NULL 0",
        "cuGetErrorName 3 @z",
        "cuGetErrorString 3 @z",
        "cuDriverGetVersion @?4",
        "cuDriverGetVersion NULL",
        "cuCtxPopCurrent_v2 @p",
        "cuProfilerStart",
        "cuCtxSetCurrent NULL",
        "cuPointerGetAttribute @d 2 4096",
        "cuLaunchKernel NULL 1 1 1 1 1 1 0 NULL NULL NULL",
        "cuThreadExchangeStreamCaptureMode {d:2}",
        "cuCtxSetCurrent c0",
        "cuCtxCreate_v2 &c1 0 0",
        "cuCtxDestroy_v2 ~c1",
        "cuDevicePrimaryCtxReset_v2 0",
        "cuDevicePrimaryCtxRelease_v2 0",
        "cuDevicePrimaryCtxGetState 0 @d @d",
    ]
    WAIT = "cuStreamSynchronize"

    @classmethod
    def early(cls, rng: random.Random) -> list[str]:
        lines = cls.some_early(rng, 8)
        if rng.random() < 0.7:
            lines += ["cuInit 1"] * rng.randrange(2) + ["cuInit 0", *cls.some_early(rng, 12)]
        return lines

    def follow(self, name: str, arguments: list[str], stack: list[str]) -> None:
        given = arguments[0] if arguments else ""
        if name in ("cuCtxCreate_v2", "cuCtxPushCurrent_v2"):
            stack.append(given.lstrip("&"))
        elif name == "cuCtxSetCurrent":
            stack[-1:] = [given]
        elif name == "cuCtxPopCurrent_v2" and stack:
            stack.pop()
        elif name == "cuCtxDestroy_v2" and given.startswith("~"):
            if stack and stack[-1] == given[1:]:
                stack.pop()
            self.lose(given[1:])

    def context(self) -> str:
        """A context of the prologue's, or one of the sequence's."""
        return self.rng.choice(["c99", "c99", "c98", *(["c97"] if self.devices > 1 else []), *self.live.get("c", [])])

    def launch(self, form: str = "") -> str:
        function, shape = self.function("f"), self.shape()
        if form:
            shown = ",".join(f"d:{value}" for value in shape)
            return f"{{{shown},q:{self.stream()},q:NULL,d:0}} {function} {self.params(function)} NULL"
        shown = " ".join(str(value) for value in shape)
        return f"{function} {shown} {self.stream()} {self.params(function)} NULL"

    def kernel(self, version: str) -> str:
        """CUDA_KERNEL_NODE_PARAMS."""
        if self.chance(0.04):
            return "NULL"
        function = self.function("f")
        shown = ",".join(f"d:{value}" for value in self.shape())
        return f"{{q:{function},{shown},q:{self.params(function)},q:NULL{',q:NULL,q:NULL' if version == '2' else ''}}}"

    def box(self, deep: str = "") -> str:
        """CUDA_MEMCPY2D or CUDA_MEMCPY3D."""
        rng = self.rng
        width, height, depth = rng.choice([4, 16, 64]), rng.choice([1, 2, 4]), rng.choice([1, 2]) if deep else 1
        pitch = rng.choice([64, 128])
        if self.chance(0.06):
            width, height, pitch = rng.choice([(0, 1, 64), (64, 0, 64), (128, 2, 64), (16, 2, 0)])
        need = str(pitch * height * depth + 64)
        fields = []
        for _side in range(2):
            kind = rng.choice([1, 2, 2, 2, 4])
            host = self.place("hn", need) if kind == 1 else "NULL"
            device = self.place("mv" if kind == 2 else "mvhn", need) if kind in (2, 4) else "NULL"
            if self.chance(0.03):
                kind = rng.choice([0, 3, 5])
            x = rng.choice([0, 0, 4])
            if deep:
                fields.append(f"q:{x},q:0,q:0,q:0,d:{kind},q:{host},q:{device},q:NULL,q:0,q:{pitch},q:{height}")
            else:
                fields.append(f"q:{x},q:0,d:{kind},q:{host},q:{device},q:NULL,q:{pitch}")
        return "{" + ",".join(fields) + f",q:{width},q:{height}" + (f",q:{depth}" if deep else "") + "}"

    def body(self) -> str:
        return self.expand(f"{{d:13,d:0,d:0,d:0,q:{self.line_handle},d:<0|0|2|9>,d:<1|1|2|0>,q:NULL,q:c99,z:200,q:0}}")

    def asked(self) -> str:
        return self.expand(ASKED)

    def change(self) -> str:
        return self.expand(CHANGE)
