-- The tree that this file lies in, below share/modulefiles/towline.
local root = myFileName():match("^(.*)/share/modulefiles/towline/[^/]*$")
whatis("Use GPUs and other OpenCL devices of other machines")
conflict("towline")
prepend_path("PATH", pathJoin(root, "bin"))
prepend_path("MANPATH", pathJoin(root, "share/man"))
