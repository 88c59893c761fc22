//! The imports and modules of one file, without test code.

use proc_macro2::{TokenStream, TokenTree};
use std::path::PathBuf;
use syn::{
    Arm, Attribute, Expr, Field, FieldValue, ImplItem, Item, ItemMod, ItemUse, Lit, Macro, Meta, Path, Stmt, Token,
    TraitItem, UseTree, Variant, Visibility, parse::Parser as _, punctuated::Punctuated, visit::Visit,
};

/// A module that is written in a file of its own.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Child {
    pub name: String,
    /// `#[path = "..."]`.
    pub file: Option<PathBuf>,
}

/// What a file says.
#[derive(Debug, Default)]
pub(crate) struct Source {
    pub children: Vec<Child>,
    /// Names that it imports, and from where.
    pub names: Vec<(String, Vec<String>)>,
    /// Whose names it imports all.
    pub globs: Vec<Vec<String>>,
    /// Paths that are written in it, with their lines.
    pub paths: Vec<(Vec<String>, usize)>,
}

/// Reads a file.
///
/// # Errors
/// Text that is not Rust.
pub(crate) fn source(text: &str) -> syn::Result<Source> {
    let file = syn::parse_file(text)?;
    let mut reader = Reader::default();
    reader.visit_file(&file);
    Ok(reader.source)
}

#[derive(Default)]
struct Reader {
    source: Source,
    /// Modules that are written in this file around where we are: they are part of it.
    inline: usize,
    /// Bodies of functions and the like around where we are: what is imported there has its name there only.
    depth: usize,
}

impl Reader {
    /// Notes a path. `super` of a module that is written in its parent's file is that file.
    fn path(&mut self, mut path: Vec<String>, line: usize) -> Vec<String> {
        let own = self.inline.min(path.iter().take_while(|part| *part == "super").count());
        path.drain(..own);
        if own > 0 && path.first().is_none_or(|first| first != "super") {
            path.insert(0, "self".to_owned());
        }
        self.source.paths.push((path.clone(), line));
        path
    }

    fn import(&mut self, tree: &UseTree, before: &[String]) {
        let with = |name: &syn::Ident| before.iter().cloned().chain([name.to_string()]).collect::<Vec<_>>();
        // `a::{self}` is `a`.
        let whole = |name: &syn::Ident| if name == "self" && !before.is_empty() { before.to_vec() } else { with(name) };
        match tree {
            UseTree::Path(path) => self.import(&path.tree, &with(&path.ident)),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.import(tree, before)),
            UseTree::Glob(glob) => {
                let path = self.path(before.to_vec(), glob.star_token.span.start().line);
                self.source.globs.push(path);
            }
            UseTree::Name(name) => {
                let whole = whole(&name.ident);
                let called = whole.last().cloned().unwrap_or_default();
                self.named(called, whole, name.ident.span().start().line);
            }
            UseTree::Rename(name) => {
                self.named(name.rename.to_string(), whole(&name.ident), name.ident.span().start().line);
            }
        }
    }

    fn named(&mut self, name: String, path: Vec<String>, line: usize) {
        let path = self.path(path, line);
        if self.inline == 0 && self.depth == 0 {
            self.source.names.push((name, path));
        }
    }

    /// Paths in what a macro is given, which need not be Rust.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let (mut line, mut colons) = (0, 0);
        for token in tokens {
            match token {
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.written(std::mem::take(&mut path), line);
                        line = name.span().start().line;
                    }
                    // `$crate::a` is `crate::a`.
                    path.push(name.to_string());
                    colons = 0;
                }
                TokenTree::Punct(sign) if sign.as_char() == ':' => colons += 1,
                TokenTree::Group(group) => {
                    // `pub(in crate::a)` imports nothing.
                    let visibility = colons == 0 && path.last().is_some_and(|name| name == "pub");
                    self.written(std::mem::take(&mut path), line);
                    colons = 0;
                    if !visibility {
                        self.tokens(group.stream());
                    }
                }
                _ => {
                    self.written(std::mem::take(&mut path), line);
                    colons = 0;
                }
            }
        }
        self.written(path, line);
    }

    fn written(&mut self, path: Vec<String>, line: usize) {
        if path.len() > 1 {
            self.path(path, line);
        }
    }
}

impl<'a> Visit<'a> for Reader {
    fn visit_item(&mut self, item: &'a Item) {
        if !is_for_tests(attributes(item)) {
            let body = !matches!(item, Item::Mod(_) | Item::Use(_));
            self.depth += usize::from(body);
            syn::visit::visit_item(self, item);
            self.depth -= usize::from(body);
        }
    }

    fn visit_item_mod(&mut self, module: &'a ItemMod) {
        if module.content.is_none() {
            self.source.children.push(Child { name: module.ident.to_string(), file: file_of(&module.attrs) });
            return;
        }
        self.inline += 1;
        syn::visit::visit_item_mod(self, module);
        self.inline -= 1;
    }

    fn visit_item_use(&mut self, item: &'a ItemUse) {
        if item.leading_colon.is_none() {
            self.import(&item.tree, &[]);
        }
    }

    fn visit_path(&mut self, path: &'a Path) {
        if path.leading_colon.is_none() && path.segments.len() > 1 {
            let names = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            self.path(names, path.segments[0].ident.span().start().line);
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, given: &'a Macro) {
        self.visit_path(&given.path);
        self.tokens(given.tokens.clone());
    }

    /// The extent of a visibility is no import.
    fn visit_visibility(&mut self, _: &'a Visibility) {}

    fn visit_attribute(&mut self, attribute: &'a Attribute) {
        if let Meta::List(list) = &attribute.meta {
            self.tokens(list.tokens.clone());
        }
    }

    fn visit_impl_item(&mut self, item: &'a ImplItem) {
        let attributes: &[Attribute] = match item {
            ImplItem::Const(item) => &item.attrs,
            ImplItem::Fn(item) => &item.attrs,
            ImplItem::Type(item) => &item.attrs,
            ImplItem::Macro(item) => &item.attrs,
            _ => &[],
        };
        if !is_for_tests(attributes) {
            syn::visit::visit_impl_item(self, item);
        }
    }

    fn visit_trait_item(&mut self, item: &'a TraitItem) {
        let attributes: &[Attribute] = match item {
            TraitItem::Const(item) => &item.attrs,
            TraitItem::Fn(item) => &item.attrs,
            TraitItem::Type(item) => &item.attrs,
            TraitItem::Macro(item) => &item.attrs,
            _ => &[],
        };
        if !is_for_tests(attributes) {
            syn::visit::visit_trait_item(self, item);
        }
    }

    fn visit_variant(&mut self, variant: &'a Variant) {
        if !is_for_tests(&variant.attrs) {
            syn::visit::visit_variant(self, variant);
        }
    }

    fn visit_field(&mut self, field: &'a Field) {
        if !is_for_tests(&field.attrs) {
            syn::visit::visit_field(self, field);
        }
    }

    fn visit_field_value(&mut self, field: &'a FieldValue) {
        if !is_for_tests(&field.attrs) {
            syn::visit::visit_field_value(self, field);
        }
    }

    fn visit_arm(&mut self, arm: &'a Arm) {
        if !is_for_tests(&arm.attrs) {
            syn::visit::visit_arm(self, arm);
        }
    }

    fn visit_stmt(&mut self, statement: &'a Stmt) {
        let attributes: &[Attribute] = match statement {
            Stmt::Local(local) => &local.attrs,
            Stmt::Macro(given) => &given.attrs,
            Stmt::Expr(Expr::Block(block), _) => &block.attrs,
            Stmt::Expr(Expr::Call(call), _) => &call.attrs,
            Stmt::Expr(Expr::MethodCall(call), _) => &call.attrs,
            _ => &[],
        };
        if !is_for_tests(attributes) {
            syn::visit::visit_stmt(self, statement);
        }
    }
}

/// `#[path = "..."]`.
fn file_of(attributes: &[Attribute]) -> Option<PathBuf> {
    attributes.iter().filter(|attribute| attribute.path().is_ident("path")).find_map(|attribute| {
        let Meta::NameValue(pair) = &attribute.meta else { return None };
        let Expr::Lit(literal) = &pair.value else { return None };
        let Lit::Str(text) = &literal.lit else { return None };
        Some(PathBuf::from(text.value()))
    })
}

/// Is what has these attributes there in tests only? `cfg(any(test, feature = "x"))` is not: others get it with that feature.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    let mut conditions = attributes.iter().filter(|attribute| attribute.path().is_ident("cfg"));
    conditions
        .any(|attribute| attribute.parse_args::<Meta>().is_ok_and(|condition| without_tests(&condition) == Some(false)))
}

/// The value of a condition outside of tests; `None`: that depends on something else.
fn without_tests(condition: &Meta) -> Option<bool> {
    if condition.path().is_ident("test") {
        return Some(false);
    }
    let Meta::List(list) = condition else { return None };
    let parts = Punctuated::<Meta, Token![,]>::parse_terminated.parse2(list.tokens.clone()).ok()?;
    let mut parts = parts.iter().map(without_tests);
    match list.path.get_ident()?.to_string().as_str() {
        "not" => parts.next()?.map(|part| !part),
        "all" if parts.any(|part| part == Some(false)) => Some(false),
        "any" if parts.all(|part| part == Some(false)) => Some(false),
        _ => None,
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}
