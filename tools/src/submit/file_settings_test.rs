#![allow(clippy::unwrap_used)]
use super::*;
use garrick_options::arguments::parse;
use std::ffi::OsString;

fn laid_over(words: &str, variables: &[(&str, &str)], config: Option<&str>) -> (Settings, Vec<Remark>) {
    let args: Vec<OsString> = words.split_whitespace().map(OsString::from).collect();
    let arguments = parse(&TABLE, &args).unwrap();
    let config = config.map(|lines| {
        let nodes = "NodeName=n1\nPartitionName=p Nodes=n1";
        let text = format!("ClusterName=c\nSlurmctldHost=h\n{nodes}\n{lines}\n");
        garrick_model::config::read_text(std::path::Path::new("/c"), &text).0.unwrap()
    });
    let variable = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
    let mut remarks = Vec::new();
    let settings = Settings::of_site(config.as_ref()).laid_over(variable, &arguments, &mut remarks);
    (settings, remarks)
}

fn read(words: &str) -> Settings {
    let (settings, remarks) = laid_over(words, &[], None);
    assert_eq!(remarks, [], "{words}");
    settings
}

#[test]
fn options_say_how_a_file_is_sent() {
    let plain = read("a b");
    assert_eq!((plain.block_bytes, plain.packed, plain.force, plain.preserve), (8 << 20, false, false, false));
    assert_eq!((plain.tree_width(), plain.send_libs, plain.timeout_secs), (8, false, 0));
    let all = read("-C -f -p -s 64k -t 7 -F 4 --send-libs --exclude=/opt,rel a b");
    assert_eq!((all.block_bytes, all.packed, all.force, all.preserve), (65536, true, true, true));
    assert_eq!((all.tree_width(), all.send_libs, all.limit(None)), (4, true, Duration::from_secs(7)));
    assert_eq!(all.excluded(), ["/opt"]);
    assert_eq!((read("--size=2m x y").block_bytes, read("--fanout=3 x y").width), (2 << 20, 3));
    assert_eq!((read("--treewidth=off x y").tree_width(), read("-F 100 x y").tree_width()), (0, 64));
    assert!(!read("--compress=none x y").packed && !read("--send-libs=no x y").send_libs);
}

#[test]
fn options_go_over_variables_and_these_over_the_sites_defaults() {
    let site = "BcastParameters=Compression=lz4,send_libs,DestDir=/scratch\nBcastExclude=/opt/lib";
    let (settings, _) = laid_over("a b", &[], Some(site));
    assert_eq!((settings.packed, settings.send_libs, settings.exclude.as_str()), (true, true, "/opt/lib"));
    let variables = [
        ("SBCAST_COMPRESS", "none"),
        ("SBCAST_EXCLUDE", "NONE"),
        ("SBCAST_FANOUT", "2"),
        ("SBCAST_FORCE", ""),
        ("SBCAST_PRESERVE", "1"),
        ("SBCAST_SEND_LIBS", "no"),
        ("SBCAST_SIZE", "1k"),
        ("SBCAST_TIMEOUT", "3"),
    ];
    let (settings, remarks) = laid_over("a b", &variables, Some(site));
    let wanted = Settings {
        block_bytes: 1024,
        packed: false,
        exclude: "NONE".into(),
        force: true,
        width: 2,
        preserve: true,
        send_libs: false,
        timeout_secs: 3,
    };
    assert_eq!((settings, remarks), (wanted, vec![]));
    let (settings, _) = laid_over("-C --send-libs=yes -F 5 -s 2k -t 9 --exclude=/x a b", &variables, Some(site));
    assert_eq!((settings.packed, settings.send_libs, settings.width), (true, true, 5));
    assert_eq!((settings.block_bytes, settings.timeout_secs, settings.exclude.as_str()), (2048, 9, "/x"));
}

#[test]
fn wrong_values_are_said_and_left_out() {
    let error = |text: &str| Remark::Error(text.to_owned());
    let (settings, remarks) =
        laid_over("-C x --send-libs=x --compress=zlib a b".replace("-C x", "-Cx").as_str(), &[], None);
    assert!(!settings.packed && !settings.send_libs);
    assert_eq!(
        remarks,
        [
            error("Compression type 'x' unknown, disabling compression support."),
            error("Ignoring unrecognized --send-libs value 'x'"),
            error("Compression type 'zlib' unknown, disabling compression support."),
        ]
    );
    for wrong in ["x", "1x", "1g", "-1", "9999999999"] {
        let (settings, remarks) = laid_over(&format!("--size={wrong} a b"), &[], None);
        assert_eq!(settings.block_bytes, 0);
        assert_eq!(remarks, [Remark::Bare("size specification is invalid, ignored".to_owned())], "{wrong}");
    }
    let (_, remarks) = laid_over("a b", &[("SBCAST_SEND_LIBS", "x"), ("SBCAST_COMPRESS", "")], None);
    let texts = [
        "Compression type '' unknown, disabling compression support.",
        "Ignoring unrecognized SBCAST_SEND_LIBS value 'x'",
    ];
    assert_eq!(remarks, texts.map(error));
    assert_eq!((read("-t x a b").timeout_secs, read("-F x a b").width), (0, 0));
}
