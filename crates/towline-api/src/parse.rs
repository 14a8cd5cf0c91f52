//! From declarations in Rust syntax to the [`model`](crate::model), with every rule of the language checked.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::Span;
use quote::ToTokens;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Attribute, ForeignItem, Ident, Item, LitInt, LitStr, Token};

use crate::ApiError;
use crate::model::{Api, Call, Expr, Extent, Handle, Mode, Param, Prim, Shape, Struct, Type};
use crate::runtime::documentation;

type Result<T> = std::result::Result<T, ApiError>;

pub(crate) fn parse(name: &str, sources: &[(String, String)]) -> Result<Api> {
    let mut api = Api {
        name: name.into(),
        ..Api::default()
    };
    let mut files = Vec::new();
    for (file, text) in sources {
        let parsed =
            syn::parse_file(text).map_err(|error| fault(file, error.span(), error.to_string()))?;
        files.push((file.as_str(), parsed));
    }
    for (file, parsed) in &files {
        types(&mut api, file, parsed)?;
    }
    for (_, parsed) in &files {
        structure_names(&mut api, parsed);
    }
    for (file, parsed) in &files {
        structures(&mut api, file, parsed)?;
    }
    for (file, parsed) in &files {
        for item in &parsed.items {
            let Item::ForeignMod(block) = item else {
                continue;
            };
            for foreign in &block.items {
                if let ForeignItem::Fn(function) = foreign {
                    let call = call(&api, file, function)?;
                    api.calls.push(call);
                }
            }
        }
    }
    api.calls.sort_by_key(|call| call.id);
    unique(&api)?;
    Ok(api)
}

fn fault(file: &str, span: Span, what: impl Into<String>) -> ApiError {
    ApiError::Declaration {
        file: file.into(),
        line: span.start().line,
        what: what.into(),
    }
}

fn unique(api: &Api) -> Result<()> {
    let mut ids = BTreeSet::new();
    let mut names = BTreeSet::new();
    for call in &api.calls {
        let file = format!("{}/{}.rs", api.name, call.group);
        if !ids.insert(call.id) {
            return Err(fault(
                &file,
                Span::call_site(),
                format!(
                    "{}: id {:#06x} is taken by another call",
                    call.name, call.id
                ),
            ));
        }
        let per_thread = call.per_thread.iter().map(|(name, _)| name);
        for name in call.aliases.iter().chain(per_thread).chain([&call.name]) {
            if !names.insert(name.clone()) {
                return Err(fault(
                    &file,
                    Span::call_site(),
                    format!("{name} is declared twice"),
                ));
            }
        }
    }
    Ok(())
}

/// Aliases, handles, constants and the dispatch order.
fn types(api: &mut Api, file: &str, parsed: &syn::File) -> Result<()> {
    for item in &parsed.items {
        match item {
            Item::Type(alias) => {
                let target = alias.ty.to_token_stream().to_string();
                if target.starts_with("Option ") {
                    api.functions.push((alias.ident.to_string(), target));
                    continue;
                }
                let prim = Prim::from_name(&target).or_else(|| api.aliases.get(&target).copied());
                let prim = prim.ok_or_else(|| {
                    fault(
                        file,
                        alias.ty.span(),
                        format!("`{target}` is no scalar declared before this"),
                    )
                })?;
                api.aliases.insert(alias.ident.to_string(), prim);
                api.alias_items.push((alias.ident.to_string(), target));
            }
            Item::Const(constant) if constant.ident == "ICD_DISPATCH" => {
                let syn::Expr::Reference(reference) = &*constant.expr else {
                    return Err(fault(
                        file,
                        constant.expr.span(),
                        "ICD_DISPATCH must be `&[\"name\", ..]`",
                    ));
                };
                let syn::Expr::Array(array) = &*reference.expr else {
                    return Err(fault(
                        file,
                        constant.expr.span(),
                        "ICD_DISPATCH must be `&[\"name\", ..]`",
                    ));
                };
                for element in &array.elems {
                    let name: LitStr = syn::parse2(element.to_token_stream()).map_err(|_| {
                        fault(
                            file,
                            element.span(),
                            "an entry of ICD_DISPATCH must be a string",
                        )
                    })?;
                    api.dispatch_order.push(name.value());
                }
            }
            Item::Const(constant) => {
                let ty = constant.ty.to_token_stream().to_string();
                let value = constant.expr.to_token_stream().to_string();
                let name = constant.ident.to_string();
                let text = documentation(&constant.attrs);
                if !text.is_empty() {
                    api.texts.insert(name.clone(), text);
                }
                api.constants.push((name, ty, value));
            }
            Item::ForeignMod(block) => {
                for foreign in &block.items {
                    let ForeignItem::Type(handle) = foreign else {
                        continue;
                    };
                    let attribute = handle
                        .attrs
                        .iter()
                        .find(|attribute| attribute.path().is_ident("handle"));
                    let attribute = attribute.ok_or_else(|| {
                        fault(
                            file,
                            handle.span(),
                            "a foreign type needs #[handle(tag = ..)]",
                        )
                    })?;
                    let mut tag = None;
                    attribute
                        .parse_nested_meta(|meta| {
                            if meta.path.is_ident("tag") {
                                tag = Some(meta.value()?.parse::<LitInt>()?.base10_parse::<u8>()?);
                                return Ok(());
                            }
                            Err(meta.error("only `tag` is known here"))
                        })
                        .map_err(|error| fault(file, error.span(), error.to_string()))?;
                    let tag = tag
                        .ok_or_else(|| fault(file, handle.span(), "#[handle] needs `tag = ..`"))?;
                    if api.handles.iter().any(|other| other.tag == tag) {
                        return Err(fault(
                            file,
                            handle.span(),
                            format!("handle tag {tag} is taken"),
                        ));
                    }
                    api.handles.push(Handle {
                        name: handle.ident.to_string(),
                        tag,
                    });
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Structures may point to each other, so their names come first.
fn structure_names(api: &mut Api, parsed: &syn::File) {
    for item in &parsed.items {
        let (name, union) = match item {
            Item::Struct(structure) => (&structure.ident, false),
            Item::Union(union) => (&union.ident, true),
            _ => continue,
        };
        api.structs.push(Struct {
            name: name.to_string(),
            union,
            ..Struct::default()
        });
    }
}

fn structures(api: &mut Api, file: &str, parsed: &syn::File) -> Result<()> {
    for item in &parsed.items {
        let (name, attrs, list): (_, _, Vec<&syn::Field>) = match item {
            Item::Struct(structure) => (
                structure.ident.to_string(),
                &structure.attrs,
                structure.fields.iter().collect(),
            ),
            Item::Union(union) => (
                union.ident.to_string(),
                &union.attrs,
                union.fields.named.iter().collect(),
            ),
            _ => continue,
        };
        let (mut fields, mut unnamed, mut align) = (Vec::new(), Vec::new(), None);
        for field in list {
            let ident = field
                .ident
                .as_ref()
                .ok_or_else(|| fault(file, field.span(), "fields need names"))?;
            for attribute in &field.attrs {
                if !attribute.path().is_ident("unnamed") {
                    return Err(fault(
                        file,
                        attribute.span(),
                        "only #[unnamed] can stand on a field",
                    ));
                }
                unnamed.push(ident.to_string());
            }
            fields.push((ident.to_string(), ty(api, file, &field.ty)?));
        }
        for attribute in attrs {
            if attribute.path().is_ident("align") {
                let number: LitInt = attribute
                    .parse_args()
                    .map_err(|error| fault(file, error.span(), error.to_string()))?;
                align = number.base10_parse().ok();
            }
        }
        if let Some(structure) = api.structs.iter_mut().find(|other| other.name == name) {
            structure.fields = fields;
            structure.unnamed = unnamed;
            structure.align = align;
        }
    }
    Ok(())
}

fn ty(api: &Api, file: &str, written: &syn::Type) -> Result<Type> {
    match written {
        syn::Type::Ptr(pointer) => Ok(Type::Pointer {
            mutable: matches!(pointer.mutability, syn::PointerMutability::Mut(_)),
            to: Box::new(ty(api, file, &pointer.elem)?),
        }),
        syn::Type::Array(array) => {
            let len: LitInt = syn::parse2(array.len.to_token_stream()).map_err(|_| {
                fault(
                    file,
                    array.len.span(),
                    "the length of an array must be a number",
                )
            })?;
            let len = len
                .base10_parse()
                .map_err(|error| fault(file, array.len.span(), error.to_string()))?;
            Ok(Type::Array(Box::new(ty(api, file, &array.elem)?), len))
        }
        syn::Type::Path(path) => {
            let text = path.to_token_stream().to_string();
            if path
                .path
                .segments
                .last()
                .is_some_and(|segment| segment.ident == "Option")
            {
                return Ok(Type::Function(text));
            }
            let name = path
                .path
                .segments
                .last()
                .map(|segment| segment.ident.to_string())
                .unwrap_or_default();
            match name.as_str() {
                "c_void" => return Ok(Type::Void),
                "c_char" => return Ok(Type::Char),
                _ => {}
            }
            if let Some(prim) = Prim::from_name(&name).or_else(|| api.aliases.get(&name).copied()) {
                return Ok(Type::Scalar(name, prim));
            }
            if api.handle(&name).is_some() {
                return Ok(Type::Handle(name));
            }
            if api.structure(&name).is_some() {
                return Ok(Type::Struct(name));
            }
            if api.functions.iter().any(|(known, _)| *known == name) {
                return Ok(Type::Function(name));
            }
            Err(fault(
                file,
                path.span(),
                format!("`{name}` is not declared in types.rs"),
            ))
        }
        other => Err(fault(
            file,
            other.span(),
            "only scalars, handles, structures and pointers can stand here",
        )),
    }
}

/// One word of an attribute: `name` or `name = value` or `name(word)`.
struct Word {
    name: Ident,
    value: Option<syn::Expr>,
    inner: Option<Ident>,
}

impl Parse for Word {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        use syn::ext::IdentExt;
        let name = input.call(Ident::parse_any)?;
        let mut word = Self {
            name,
            value: None,
            inner: None,
        };
        if input.peek(Token![=]) {
            input.parse::<Token![=]>()?;
            word.value = Some(input.parse()?);
        } else if input.peek(syn::token::Paren) {
            let content;
            syn::parenthesized!(content in input);
            word.inner = Some(content.parse()?);
        }
        Ok(word)
    }
}

fn words(file: &str, attribute: &Attribute) -> Result<Vec<Word>> {
    if matches!(attribute.meta, syn::Meta::Path(_)) {
        return Ok(Vec::new());
    }
    attribute
        .parse_args_with(Punctuated::<Word, Token![,]>::parse_terminated)
        .map(|list| list.into_iter().collect())
        .map_err(|error| fault(file, error.span(), error.to_string()))
}

fn string(file: &str, word: &Word) -> Result<String> {
    let value = word
        .value
        .as_ref()
        .map(ToTokens::to_token_stream)
        .unwrap_or_default();
    let text: LitStr = syn::parse2(value).map_err(|_| {
        fault(
            file,
            word.name.span(),
            format!("`{}` needs a string in quotes", word.name),
        )
    })?;
    Ok(text.value())
}

fn call(api: &Api, file: &str, function: &syn::ForeignItemFn) -> Result<Call> {
    let signature = &function.sig;
    let group = file
        .rsplit('/')
        .next()
        .unwrap_or(file)
        .trim_end_matches(".rs")
        .to_string();
    let mut call = Call {
        id: 0,
        name: signature.ident.to_string(),
        doc: String::new(),
        group,
        mode: Mode::Sync,
        waits: false,
        manual_client: false,
        manual_server: false,
        forward: false,
        unsupported: false,
        denied: false,
        fixed: false,
        planned: false,
        internal: false,
        aliases: Vec::new(),
        alias_since: BTreeMap::new(),
        per_thread: Vec::new(),
        since: None,
        deprecated: None,
        extension: None,
        params: Vec::new(),
        ret: Type::Void,
    };
    let mut id = None;
    for attribute in &function.attrs {
        if attribute.path().is_ident("doc") {
            if let syn::Meta::NameValue(pair) = &attribute.meta {
                let line = pair.value.to_token_stream().to_string();
                let line = line.trim_matches('"').trim().replace("\\\"", "\"");
                if !call.doc.is_empty() {
                    call.doc.push(' ');
                }
                call.doc.push_str(&line);
            }
            continue;
        }
        if !attribute.path().is_ident("call") {
            return Err(fault(
                file,
                attribute.span(),
                "only #[call(..)] and documentation can stand on a call",
            ));
        }
        for word in words(file, attribute)? {
            match word.name.to_string().as_str() {
                "id" => {
                    let value = word
                        .value
                        .as_ref()
                        .map(ToTokens::to_token_stream)
                        .unwrap_or_default();
                    let number: LitInt = syn::parse2(value).map_err(|_| {
                        fault(file, word.name.span(), "`id` needs a number such as 0x0501")
                    })?;
                    id = Some(
                        number
                            .base10_parse::<u16>()
                            .map_err(|error| fault(file, number.span(), error.to_string()))?,
                    );
                }
                "sync" => call.mode = Mode::Sync,
                "async" => call.mode = Mode::Async,
                "local" => call.mode = Mode::Local,
                "waits" => call.waits = true,
                "manual" => match word.inner.as_ref().map(ToString::to_string).as_deref() {
                    None => (call.manual_client, call.manual_server) = (true, true),
                    Some("client") => call.manual_client = true,
                    Some("server") => call.manual_server = true,
                    Some(_) => {
                        return Err(fault(
                            file,
                            word.name.span(),
                            "write manual, manual(client) or manual(server)",
                        ));
                    }
                },
                "forward" => call.forward = true,
                "unsupported" => call.unsupported = true,
                "denied" => (call.unsupported, call.denied) = (true, true),
                "fixed" => call.fixed = true,
                "planned" => call.planned = true,
                "internal" => call.internal = true,
                "alias" => {
                    let (name, since) = versioned(string(file, &word)?);
                    if let Some(since) = since {
                        call.alias_since.insert(name.clone(), since);
                    }
                    call.aliases.push(name);
                }
                "per_thread" => {
                    let (name, since) = versioned(string(file, &word)?);
                    let since = since.ok_or_else(|| {
                        let what = "`per_thread` needs a name and its version: \"cuFoo_ptsz@7.0\"";
                        fault(file, word.name.span(), what)
                    })?;
                    call.per_thread.push((name, since));
                }
                "since" => call.since = Some(string(file, &word)?),
                "deprecated" => call.deprecated = Some(string(file, &word)?),
                "extension" => call.extension = Some(string(file, &word)?),
                other => {
                    return Err(fault(
                        file,
                        word.name.span(),
                        format!("`{other}` is no word of #[call]"),
                    ));
                }
            }
        }
    }
    call.id = id.ok_or_else(|| {
        fault(
            file,
            signature.span(),
            format!("{} needs #[call(id = 0x....)]", call.name),
        )
    })?;
    if call.doc.is_empty() {
        return Err(fault(
            file,
            signature.span(),
            format!("{} needs a line of documentation", call.name),
        ));
    }
    if let syn::ReturnType::Type(_, written) = &signature.output {
        call.ret = ty(api, file, written)?;
    }
    for input in &signature.inputs {
        let syn::FnArg::Typed(typed) = input else {
            return Err(fault(file, input.span(), "a call takes no self"));
        };
        call.params.push(param(api, file, typed)?);
    }
    check(api, file, signature.span(), &call)?;
    Ok(call)
}

fn param(api: &Api, file: &str, typed: &syn::PatType) -> Result<Param> {
    let name = typed.pat.to_token_stream().to_string();
    let written = ty(api, file, &typed.ty)?;
    let pointer = matches!(written, Type::Pointer { .. });
    let (mut shape, mut bulk) = (None, false);
    for attribute in &typed.attrs {
        let kind = attribute
            .path()
            .get_ident()
            .map(ToString::to_string)
            .unwrap_or_default();
        let list = words(file, attribute)?;
        bulk |= list.iter().any(|word| word.name == "bulk");
        let next = match kind.as_str() {
            "destroys" => Shape::Value { destroys: true },
            "errcode" => Shape::ErrCode,
            "callback" => Shape::Callback,
            "user_data" => Shape::UserData,
            "local" => Shape::Local,
            "input" | "out" | "inout" => direction(file, &kind, &list)?,
            other => {
                return Err(fault(
                    file,
                    attribute.span(),
                    format!("`{other}` is no attribute of a parameter"),
                ));
            }
        };
        if shape.replace(next).is_some() {
            return Err(fault(
                file,
                attribute.span(),
                format!("{name} has two directions; a parameter has one"),
            ));
        }
    }
    let shape = match shape {
        Some(Shape::Value { .. }) if pointer => {
            return Err(fault(
                file,
                typed.span(),
                format!("{name}: #[destroys] stands on a handle by value"),
            ));
        }
        Some(shape) => shape,
        None if pointer || matches!(written, Type::Function(_)) => {
            return Err(fault(
                file,
                typed.span(),
                format!(
                    "{name} is a pointer without a direction: add #[input(..)], #[out(..)], #[callback] or #[local]"
                ),
            ));
        }
        None => Shape::Value { destroys: false },
    };
    Ok(Param {
        name,
        ty: written,
        shape,
        bulk,
    })
}

fn direction(file: &str, kind: &str, list: &[Word]) -> Result<Shape> {
    let (mut extent, mut nullable, mut creates, mut actual, mut size_of) =
        (Extent::One, false, false, None, false);
    let (mut device_value, mut cleared, mut place) = (false, false, false);
    for word in list {
        match word.name.to_string().as_str() {
            "len" => extent = Extent::Len(expr(file, word)?),
            "bytes" => extent = Extent::Bytes(expr(file, word)?),
            "cstr" => extent = Extent::CStr,
            "list" => extent = Extent::List,
            "nullable" => nullable = true,
            "creates" => creates = true,
            "size_of" => size_of = true,
            "device_value" => device_value = true,
            "cleared" => cleared = true,
            "place" => place = true,
            // The parameter's; the generated code never copies payload more than once anyway.
            "bulk" => {}
            "actual" => {
                actual = word
                    .value
                    .as_ref()
                    .map(|value| value.to_token_stream().to_string())
            }
            other => {
                return Err(fault(
                    file,
                    word.name.span(),
                    format!("`{other}` is no word of #[{kind}]"),
                ));
            }
        }
    }
    match kind {
        "input" => Ok(Shape::Input { extent, nullable }),
        "out" if size_of => Ok(Shape::SizeOf),
        "out" => Ok(Shape::Output {
            extent,
            nullable,
            creates,
            actual,
            device_value,
            cleared,
            place,
        }),
        _ => Ok(Shape::InOut { extent, nullable }),
    }
}

fn expr(file: &str, word: &Word) -> Result<Expr> {
    let fail = || {
        fault(
            file,
            word.name.span(),
            format!(
                "`{}` needs a parameter, a number, parameter * number, or parameter - number",
                word.name
            ),
        )
    };
    let number = |expression: &syn::Expr| -> Option<u64> {
        syn::parse2::<LitInt>(expression.to_token_stream())
            .ok()?
            .base10_parse()
            .ok()
    };
    let name = |expression: &syn::Expr| -> Option<String> {
        matches!(expression, syn::Expr::Path(_)).then(|| expression.to_token_stream().to_string())
    };
    let value = word.value.as_ref().ok_or_else(fail)?;
    if let Some(factor) = number(value) {
        return Ok(Expr {
            param: None,
            factor,
            less: 0,
        });
    }
    if let Some(param) = name(value) {
        return Ok(Expr {
            param: Some(param),
            factor: 1,
            less: 0,
        });
    }
    if let syn::Expr::Binary(two) = value
        && let (Some(param), Some(number)) = (name(&two.left), number(&two.right))
        && let Some((factor, less)) = match two.op {
            syn::BinOp::Mul(_) => Some((number, 0)),
            syn::BinOp::Sub(_) => Some((1, number)),
            _ => None,
        }
    {
        return Ok(Expr {
            param: Some(param),
            factor,
            less,
        });
    }
    Err(fail())
}

/// `cuFoo@2.0`: a name and the version that introduced it.
fn versioned(text: String) -> (String, Option<String>) {
    match text.split_once('@') {
        Some((name, since)) => (name.into(), Some(since.into())),
        None => (text, None),
    }
}

/// Rules that need the whole call.
fn check(api: &Api, file: &str, span: Span, call: &Call) -> Result<()> {
    let find = |name: &str| call.params.iter().find(|param| param.name == name);
    for param in &call.params {
        let extent = match &param.shape {
            Shape::Input { extent, .. } | Shape::Output { extent, .. } => extent,
            Shape::InOut {
                extent: Extent::One,
                nullable: false,
            } if call.carries_inout() && versioned_struct(api, param) => continue,
            Shape::Callback | Shape::UserData | Shape::Local | Shape::InOut { .. }
                if call.travels() && !(call.manual_client && call.manual_server) =>
            {
                return Err(fault(
                    file,
                    span,
                    format!(
                        "{}: {} cannot travel, so both halves must be manual",
                        call.name, param.name
                    ),
                ));
            }
            _ => continue,
        };
        if let Extent::Len(Expr {
            param: Some(length),
            ..
        })
        | Extent::Bytes(Expr {
            param: Some(length),
            ..
        }) = extent
            && !find(length).is_some_and(|other| is_length(call, other))
        {
            return Err(fault(
                file,
                span,
                format!(
                    "{}: the length of {} names no scalar parameter `{length}`",
                    call.name, param.name
                ),
            ));
        }
        if let Shape::Output {
            actual: Some(actual),
            ..
        } = &param.shape
            && !find(actual).is_some_and(|other| other.shape == Shape::SizeOf)
        {
            return Err(fault(
                file,
                span,
                format!(
                    "{}: `actual = {actual}` names no #[out(size_of)] parameter",
                    call.name
                ),
            ));
        }
    }
    if call.travels() && api.dialect().creates_by_out {
        for param in &call.params {
            travelling(api, call, param).map_err(|why| {
                let name = &call.name;
                fault(file, span, format!("{name}: `{}` {why}", param.name))
            })?;
        }
    }
    if call.forward {
        forwardable(call).map_err(|why| {
            let name = &call.name;
            fault(file, span, format!("{name} cannot be `forward`: {why}"))
        })?;
    }
    if call.travels()
        && call.creates()
        && !call
            .params
            .iter()
            .any(|param| param.shape == Shape::ErrCode)
    {
        return Err(fault(
            file,
            span,
            format!(
                "{} creates a handle, so it needs an #[errcode] parameter",
                call.name
            ),
        ));
    }
    Ok(())
}

/// Whether a parameter can be a length: a scalar, or where nothing travels one that comes out again as the true count.
fn is_length(call: &Call, param: &Param) -> bool {
    match (&param.ty, &param.shape) {
        (Type::Scalar(..), _) => true,
        (Type::Pointer { to, .. }, Shape::InOut { .. }) => {
            !call.travels() && matches!(**to, Type::Scalar(..))
        }
        _ => false,
    }
}

/// Whether a parameter points to a structure that travels and says its own size: both sides hold it to the size that they know.
fn versioned_struct(api: &Api, param: &Param) -> bool {
    match &param.ty {
        Type::Pointer { to, .. } => api.says_its_size(to),
        _ => false,
    }
}

/// What a message carries is data and numbers of objects: addresses of the application's or the vendor's process have no place there.
fn travelling(api: &Api, call: &Call, param: &Param) -> std::result::Result<(), String> {
    if call.manual_client && call.manual_server {
        return Ok(());
    }
    let pointee = match &param.ty {
        Type::Pointer { to, .. } => to,
        other => other,
    };
    let made = matches!(param.shape, Shape::Output { creates: true, .. });
    match (pointee, &param.shape) {
        (Type::Handle(_), Shape::Output { .. }) if !made => {
            Err("gives out a handle that nobody on the client knows: add `creates`".into())
        }
        (Type::Struct(name), _) if !api.travels(name) => Err(format!(
            "holds a `{name}`, which does not travel field by field: declare the call `local, manual(client)` over a message of the session"
        )),
        (Type::Pointer { .. }, _) => Err("points to a pointer, which cannot travel".into()),
        _ => Ok(()),
    }
}

/// What is passed on as it is must be no more than a question about objects: the platform answers for everything that lives on.
fn forwardable(call: &Call) -> std::result::Result<(), String> {
    let handle = |ty: &Type| matches!(ty, Type::Handle(_));
    let pointed = |param: &Param| matches!(&param.ty, Type::Pointer { to, .. } if handle(to));
    if call.unsupported || call.internal {
        return Err("it is no call that the library answers".into());
    }
    if !matches!(call.ret, Type::Scalar(..)) {
        return Err("it does not return a status".into());
    }
    if !call.params.iter().any(|param| handle(&param.ty)) {
        return Err("no object says which provider it goes to".into());
    }
    for param in &call.params {
        let lives_on = match &param.shape {
            Shape::Value { destroys } => *destroys,
            Shape::Output { creates, .. } => *creates,
            Shape::Callback
            | Shape::UserData
            | Shape::ErrCode
            | Shape::Local
            | Shape::InOut { .. } => true,
            Shape::Input { .. } | Shape::SizeOf => false,
        };
        if lives_on || pointed(param) {
            return Err(format!("`{}` needs a method of the platform", param.name));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
