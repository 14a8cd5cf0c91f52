//! What a declaration means, after parsing and checking: the input of every emitter.

use std::collections::BTreeMap;

/// One API with its types and calls.
#[derive(Debug, Clone, Default)]
pub struct Api {
    /// Folder below `api/`.
    pub name: String,
    /// Scalar aliases: name to primitive.
    pub aliases: BTreeMap<String, Prim>,
    /// Aliases as declared, in order: name, target as written.
    pub alias_items: Vec<(String, String)>,
    /// Types of the application's functions: name, target as written.
    pub functions: Vec<(String, String)>,
    /// Handle types, by tag.
    pub handles: Vec<Handle>,
    /// Structures.
    pub structs: Vec<Struct>,
    /// Constants: name, type, value as written.
    pub constants: Vec<(String, String, String)>,
    /// The first lines of the documentation of constants, by name.
    pub texts: BTreeMap<String, String>,
    /// Order of the loader's dispatch table.
    pub dispatch_order: Vec<String>,
    /// The calls, by id.
    pub calls: Vec<Call>,
}

/// A primitive with its wire width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prim {
    /// A signed byte.
    I8,
    /// A byte.
    U8,
    /// A signed number of 16 bits.
    I16,
    /// A number of 16 bits.
    U16,
    /// A signed number of 32 bits.
    I32,
    /// A number of 32 bits.
    U32,
    /// A signed number of 64 bits.
    I64,
    /// A number of 64 bits.
    U64,
    /// A floating-point number of 32 bits.
    F32,
    /// A floating-point number of 64 bits.
    F64,
    /// Pointer-sized in memory, 64 bits on the wire.
    Usize,
}

impl Prim {
    /// The type's name in Rust.
    pub fn rust(self) -> &'static str {
        match self {
            Self::I8 => "i8",
            Self::U8 => "u8",
            Self::I16 => "i16",
            Self::U16 => "u16",
            Self::I32 => "i32",
            Self::U32 => "u32",
            Self::I64 => "i64",
            Self::U64 => "u64",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::Usize => "usize",
        }
    }

    /// The type it travels as.
    pub fn wire(self) -> &'static str {
        if self == Self::Usize {
            "u64"
        } else {
            self.rust()
        }
    }

    /// The primitive of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "i8" => Self::I8,
            "u8" => Self::U8,
            "i16" => Self::I16,
            "u16" => Self::U16,
            "i32" => Self::I32,
            "u32" => Self::U32,
            "i64" => Self::I64,
            "u64" => Self::U64,
            "f32" => Self::F32,
            "f64" => Self::F64,
            "usize" => Self::Usize,
            _ => return None,
        })
    }
}

/// A handle type.
#[derive(Debug, Clone)]
pub struct Handle {
    /// The API's name: `cl_mem`.
    pub name: String,
    /// Stable number of the kind.
    pub tag: u8,
}

impl Handle {
    /// The newtype on the wire: `cl_mem` gives `MemHandle`.
    pub fn wire(&self) -> String {
        format!("{}Handle", camel(self.short()))
    }

    /// The kind in lower case: `cl_command_queue` gives `command_queue`.
    pub fn short(&self) -> &str {
        let name = self.name.strip_prefix("cl_");
        let name = name.or_else(|| self.name.strip_prefix("CU"));
        let name = name.or_else(|| self.name.strip_prefix("nvml"));
        let name = name.unwrap_or(&self.name);
        let shorter = name.strip_suffix("_id");
        shorter.or_else(|| name.strip_suffix("_t")).unwrap_or(name)
    }
}

/// A structure that crosses the API, most often by pointer.
#[derive(Debug, Clone, Default)]
pub struct Struct {
    /// The API's name.
    pub name: String,
    /// A union: its fields share their place.
    pub union: bool,
    /// Alignment beyond that of its fields.
    pub align: Option<usize>,
    /// Fields that have no name in C, where their own fields stand in for them.
    pub unnamed: Vec<String>,
    /// Fields in order.
    pub fields: Vec<(String, Type)>,
}

/// A type in a signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Type {
    /// No value.
    Void,
    /// A scalar, with the name it was declared by.
    Scalar(String, Prim),
    /// A handle.
    Handle(String),
    /// A structure (behind a pointer).
    Struct(String),
    /// `c_char`.
    Char,
    /// A pointer.
    Pointer {
        /// `*mut`, not `*const`.
        mutable: bool,
        /// What it points to.
        to: Box<Type>,
    },
    /// A C array inside a structure.
    Array(Box<Type>, usize),
    /// A function pointer, as written.
    Function(String),
}

impl Type {
    /// The type as Rust source.
    pub fn rust(&self) -> String {
        match self {
            Self::Void => "c_void".into(),
            Self::Scalar(name, _) => name.clone(),
            Self::Handle(name) | Self::Struct(name) => name.clone(),
            Self::Char => "c_char".into(),
            Self::Pointer { mutable, to } => {
                format!("*{} {}", if *mutable { "mut" } else { "const" }, to.rust())
            }
            Self::Array(of, len) => format!("[{}; {len}]", of.rust()),
            Self::Function(text) => text.clone(),
        }
    }
}

/// Who answers a call, and whether its caller waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Waits for the reply.
    Sync,
    /// Posts; an error comes later.
    Async,
    /// Answered by the client.
    Local,
}

/// One declared call.
#[derive(Debug, Clone)]
pub struct Call {
    /// Wire id.
    pub id: u16,
    /// Name as in the C API.
    pub name: String,
    /// First line of its documentation.
    pub doc: String,
    /// File it stands in, without folder and ending.
    pub group: String,
    /// Who answers.
    pub mode: Mode,
    /// May wait for the device.
    pub waits: bool,
    /// The client's half is written by hand.
    pub manual_client: bool,
    /// The server's half is written by hand.
    pub manual_server: bool,
    /// The platform layer passes it on as it is.
    pub forward: bool,
    /// Declared, answered "not supported".
    pub unsupported: bool,
    /// Declared, and refused because no client may: `unsupported` too.
    pub denied: bool,
    /// Its answers never change while the server runs.
    pub fixed: bool,
    /// Declared for later: has its message, and is answered "not supported" until both halves are there.
    pub planned: bool,
    /// A message of the session itself: not exported.
    pub internal: bool,
    /// Other exported names.
    pub aliases: Vec<String>,
    /// Versions that introduced those of the other names that say so.
    pub alias_since: BTreeMap<String, String>,
    /// Names under which the default stream is the calling thread's own, with the version that introduced each.
    pub per_thread: Vec<(String, String)>,
    /// Version that introduced it.
    pub since: Option<String>,
    /// Version that deprecated it.
    pub deprecated: Option<String>,
    /// Extension it belongs to.
    pub extension: Option<String>,
    /// Parameters in order.
    pub params: Vec<Param>,
    /// What it returns.
    pub ret: Type,
}

impl Call {
    /// The message's name: `clCreateBuffer` gives `CreateBuffer`.
    pub fn message(&self) -> String {
        let name = self.name.strip_prefix("cl");
        let name = name.or_else(|| self.name.strip_prefix("cu"));
        let name = name.or_else(|| self.name.strip_prefix("nvml"));
        camel(name.unwrap_or(&self.name))
    }

    /// Whether it has a message on the wire.
    pub fn travels(&self) -> bool {
        !self.unsupported && self.mode != Mode::Local
    }

    /// Whether it is a function of the C API.
    pub fn exported(&self) -> bool {
        !self.internal
    }

    /// Whether a client and a worker have a half of it by now.
    pub fn served(&self) -> bool {
        !self.unsupported && !self.planned
    }

    /// Whether what goes in and out of a parameter travels: it does where a half is generated.
    pub fn carries_inout(&self) -> bool {
        self.travels() && !(self.manual_client && self.manual_server)
    }

    /// Whether it returns a new handle.
    pub fn creates(&self) -> bool {
        matches!(self.ret, Type::Handle(_))
    }
}

/// One parameter.
#[derive(Debug, Clone)]
pub struct Param {
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: Type,
    /// How it travels.
    pub shape: Shape,
    /// Payload: its address may be the device's, or of memory that has yet to be fetched.
    pub bulk: bool,
}

/// How a parameter travels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shape {
    /// By value; `destroys` ends the handle's life.
    Value {
        /// Ends the life of the handle.
        destroys: bool,
    },
    /// Data into the call.
    Input {
        /// How far it points.
        extent: Extent,
        /// NULL is legal.
        nullable: bool,
    },
    /// Data out of the call.
    Output {
        /// How far it points.
        extent: Extent,
        /// NULL is legal.
        nullable: bool,
        /// A new handle comes out.
        creates: bool,
        /// The parameter that receives the true size or count.
        actual: Option<String>,
        /// The driver picks it and the device interprets it.
        device_value: bool,
        /// It is zero before the call is looked at, and so where that fails.
        cleared: bool,
        /// The half that is written by hand gets the place, and says what NULL means there.
        place: bool,
    },
    /// Data into the call and out of it again. A message carries a structure that says its own size.
    InOut {
        /// How far it points.
        extent: Extent,
        /// NULL is legal.
        nullable: bool,
    },
    /// Receives the true size or count of another output.
    SizeOf,
    /// Receives the status of a creating call.
    ErrCode,
    /// A function of the application.
    Callback,
    /// Goes to the callback.
    UserData,
    /// A pointer that never travels.
    Local,
}

/// How far a pointer points.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Extent {
    /// One element.
    One,
    /// So many elements.
    Len(Expr),
    /// So many bytes.
    Bytes(Expr),
    /// Up to the NUL.
    CStr,
    /// Pairs of 64-bit words up to a zero name.
    List,
}

/// A length: a parameter times a factor, a parameter less a number, or a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expr {
    /// The parameter, if any.
    pub param: Option<String>,
    /// Its factor, or the number.
    pub factor: u64,
    /// The number to subtract.
    pub less: u64,
}

/// `command_queue` to `CommandQueue`; what is capitalised already stays.
pub fn camel(name: &str) -> String {
    name.split('_')
        .map(|word| {
            let mut letters = word.chars();
            letters
                .next()
                .map(|first| first.to_ascii_uppercase().to_string() + letters.as_str())
                .unwrap_or_default()
        })
        .collect()
}

/// What the APIs do not have in common, as the emitters need it.
#[derive(Debug)]
pub struct Dialect {
    /// The contract: the trait of all calls.
    pub contract: &'static str,
    /// Its implementation over the vendor's library.
    pub native: &'static str,
    /// The type of a status.
    pub status: &'static str,
    /// The status of what went well.
    pub success: &'static str,
    /// The status of a pointer that must not be NULL.
    pub invalid_value: &'static str,
    /// The status of a structure of another version than is declared.
    pub version_mismatch: &'static str,
    /// Every handle that a call gives out is made by it; in OpenCL only events are.
    pub creates_by_out: bool,
    /// The library's functions are exported by name; OpenCL's are found through a dispatch table.
    pub by_symbol: bool,
    /// They are also found by name and version.
    pub by_version: bool,
    /// The version that a call without one is from.
    pub first_version: &'static str,
    /// Hand-written halves of the client get Rust types in place of pointers.
    pub typed: bool,
}

const OPENCL: Dialect = Dialect {
    contract: "OpenClApi",
    native: "NativeOpenCl",
    status: "cl_int",
    success: "CL_SUCCESS",
    invalid_value: "CL_INVALID_VALUE",
    version_mismatch: "CL_INVALID_VALUE",
    creates_by_out: false,
    by_symbol: false,
    by_version: false,
    first_version: "1.0",
    typed: false,
};

const CUDA: Dialect = Dialect {
    contract: "CudaApi",
    native: "NativeCuda",
    status: "CUresult",
    success: "CUDA_SUCCESS",
    invalid_value: "CUDA_ERROR_INVALID_VALUE",
    version_mismatch: "CUDA_ERROR_INVALID_VALUE",
    creates_by_out: true,
    by_symbol: true,
    by_version: true,
    first_version: "2.0",
    typed: true,
};

const NVML: Dialect = Dialect {
    contract: "NvmlApi",
    native: "NativeNvml",
    status: "nvmlReturn_t",
    success: "NVML_SUCCESS",
    invalid_value: "NVML_ERROR_INVALID_ARGUMENT",
    version_mismatch: "NVML_ERROR_ARGUMENT_VERSION_MISMATCH",
    creates_by_out: true,
    by_symbol: true,
    by_version: false,
    first_version: "1.0",
    typed: false,
};

impl Api {
    /// How this API differs from the others.
    pub fn dialect(&self) -> &'static Dialect {
        match self.name.as_str() {
            "cuda" => &CUDA,
            "nvml" => &NVML,
            _ => &OPENCL,
        }
    }

    /// Whether a structure travels field by field: scalars, handles, arrays of scalars, and structures of nothing but those. One
    /// without fields is only named, since no call that looks into it is answered.
    pub fn travels(&self, name: &str) -> bool {
        self.structure(name).is_some_and(|structure| {
            !structure.union
                && !structure.fields.is_empty()
                && structure.align.is_none()
                && structure.fields.iter().all(|(_, ty)| match ty {
                    Type::Scalar(..) | Type::Handle(_) => true,
                    other => self.is_data(other),
                })
        })
    }

    /// Whether a structure says its own size, in the low 24 bits of its first field: it goes in and comes out again.
    pub fn says_its_size(&self, ty: &Type) -> bool {
        let Type::Struct(name) = ty else {
            return false;
        };
        let first = self
            .structure(name)
            .and_then(|structure| structure.fields.first());
        first.is_some_and(|(field, ty)| {
            field == "version" && matches!(ty, Type::Scalar(_, Prim::U32))
        })
    }

    /// Whether a value is scalars all through.
    fn is_data(&self, ty: &Type) -> bool {
        match ty {
            Type::Scalar(..) => true,
            Type::Array(of, _) => matches!(**of, Type::Scalar(..) | Type::Char),
            Type::Struct(name) => {
                self.travels(name)
                    && self.structure(name).is_some_and(|structure| {
                        structure.fields.iter().all(|(_, ty)| self.is_data(ty))
                    })
            }
            _ => false,
        }
    }

    /// The handle type of this name.
    pub fn handle(&self, name: &str) -> Option<&Handle> {
        self.handles.iter().find(|handle| handle.name == name)
    }

    /// The structure of this name.
    pub fn structure(&self, name: &str) -> Option<&Struct> {
        self.structs.iter().find(|structure| structure.name == name)
    }

    /// The call of this name or alias.
    pub fn call(&self, name: &str) -> Option<&Call> {
        self.calls
            .iter()
            .find(|call| call.name == name || call.aliases.iter().any(|alias| alias == name))
    }
}
