#%Module1.0
# The tree that this file lies in, below share/modulefiles/towline.
set root [file normalize [file join [file dirname $ModulesCurrentModulefile] .. .. ..]]
module-whatis "Use GPUs and other OpenCL devices of other machines"
conflict towline
prepend-path PATH [file join $root bin]
prepend-path MANPATH [file join $root share man]
