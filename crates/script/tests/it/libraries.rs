//! Compares the results of the libraries with the results of Redis 7.0.15.

use crate::{Bench, bulk};

#[test]
fn json_goes_both_ways() {
    let mut bench = Bench::new();
    let cases = [
        (
            "return cjson.encode({1,2,'x/y\"',{}, cjson.null, 1.5, 1e20, 0.1})",
            r#"[1,2,"x\/y\"",{},null,1.5,1e+20,0.1]"#,
        ),
        ("return cjson.encode({[1]=1,[3]=3})", "[1,null,3]"),
        ("return cjson.encode({a={}})", r#"{"a":{}}"#),
        (
            "return cjson.encode(12345678901234567)",
            "1.2345678901235e+16",
        ),
        ("return cjson.encode('a\\001\\127')", "\"a\\u0001\\u007f\""),
        (
            "return cjson.encode(cjson.decode('{\"a\":[1,2,{\"b\":null}]}'))",
            r#"{"a":[1,2,{"b":null}]}"#,
        ),
        (
            "return cjson.decode('\"\\\\u00e9\\\\ud83d\\\\ude00\"')",
            "é😀",
        ),
        ("return tostring(cjson.null)", "userdata: (nil)"),
        ("return tostring(92 / 3)", "30.666666666667"),
        ("return tostring(1e14)", "1e+14"),
        ("return tostring(99999999999999)", "99999999999999"),
        (
            "return tostring(cjson.decode('[null]')[1] == cjson.null)",
            "true",
        ),
    ];
    for (source, text) in cases {
        assert_eq!(bench.run(source), Ok(bulk(text)), "{source}");
    }
    for (source, text) in [
        (
            "cjson.decode('')",
            "Expected value but found T_END at character 1",
        ),
        (
            "cjson.decode('nul')",
            "Expected value but found invalid token at character 1",
        ),
        (
            "cjson.decode('{\"a\" 1}')",
            "Expected colon but found T_NUMBER at character 6",
        ),
        (
            "cjson.decode('[1] x')",
            "Expected the end but found invalid token at character 5",
        ),
        (
            "cjson.encode(1/0)",
            "Cannot serialise number: must not be NaN or Inf",
        ),
        (
            "cjson.encode(pcall)",
            "Cannot serialise function: type not supported",
        ),
        (
            "cjson.encode({[1]=1,[100]=2})",
            "Cannot serialise table: excessively sparse array",
        ),
        (
            "local t = {} t[1] = t cjson.encode(t)",
            "Cannot serialise, excessive depth (1001)",
        ),
        (
            "cjson.decode(string.rep('[', 1001))",
            "Found too many nested data structures (1001) at character 1001",
        ),
    ] {
        let error = bench.error(source);
        assert!(
            error.starts_with(&format!("ERR user_script:1: {text}")),
            "{source}: {error}"
        );
    }
}

#[test]
fn message_pack_goes_both_ways() {
    let mut bench = Bench::new();
    let hex = "local s = cmsgpack.pack(1,-1,1.5,'a',{1,2},true,nil,300,2^40,0.1,{a=1}) return (s:gsub('.', function(c) \
               return string.format('%02x', c:byte()) end))";
    let wanted = "01ffca3fc00000a1619201 02c3c0cd012ccf0000010000000000cb3fb999999999999a81a16101"
        .replace(' ', "");
    assert_eq!(bench.run(hex), Ok(bulk(&wanted)));
    let back = "return {cmsgpack.unpack(cmsgpack.pack(1, -200, 'x', {1, {2}}))}";
    assert_eq!(
        bench.run(back),
        Ok("*4\r\n:1\r\n:-200\r\n$1\r\nx\r\n*2\r\n:1\r\n*1\r\n:2\r\n".into())
    );
    assert_eq!(
        bench.run("return {cmsgpack.unpack_one('\\1\\2')}"),
        Ok("*2\r\n:1\r\n:1\r\n".into())
    );
    assert_eq!(
        bench.run("return {cmsgpack.unpack_one('\\1\\2', 1)}"),
        Ok("*2\r\n:-1\r\n:2\r\n".into())
    );
    assert_eq!(
        bench.run("return {cmsgpack.unpack_limit('\\1\\2\\3', 2)}"),
        Ok("*3\r\n:2\r\n:1\r\n:2\r\n".into())
    );
    assert!(
        bench
            .error("cmsgpack.unpack('\\220')")
            .contains("Missing bytes in input.")
    );
    assert!(
        bench
            .error("cmsgpack.unpack('\\193')")
            .contains("Bad data format in input.")
    );
}

#[test]
fn structs_go_both_ways() {
    let mut bench = Bench::new();
    let cases = [
        ("return #struct.pack('>I2i4s','1','2','abc')", ":10\r\n"),
        ("return struct.size('>I2i8d')", ":18\r\n"),
        ("return struct.size('!bi')", ":8\r\n"),
        (
            "return {struct.unpack('>I2', '\\1\\2\\3')}",
            "*2\r\n:258\r\n:3\r\n",
        ),
        (
            "return {struct.unpack('<i2', '\\254\\255')}",
            "*2\r\n:-2\r\n:3\r\n",
        ),
        (
            "return {struct.unpack('Bc0', '\\2abc')}",
            "*2\r\n$2\r\nab\r\n:4\r\n",
        ),
        (
            "return {struct.unpack('s', 'abc\\0d')}",
            "*2\r\n$3\r\nabc\r\n:5\r\n",
        ),
        (
            "return {struct.unpack('d', struct.pack('d', 1.5))}",
            "*2\r\n:1\r\n:9\r\n",
        ),
    ];
    for (source, reply) in cases {
        assert_eq!(bench.run(source).as_deref(), Ok(reply), "{source}");
    }
    assert!(
        bench
            .error("struct.pack('Q', 1)")
            .contains("(invalid format option 'Q')")
    );
    assert!(
        bench
            .error("struct.unpack('i4', 'a')")
            .contains("data string too short")
    );
    assert!(
        bench
            .error("struct.pack('c2', 'a')")
            .contains("string too short")
    );
}

#[test]
fn bits_have_a_sign() {
    let mut bench = Bench::new();
    let source = "return {bit.bor(1, 2, 4), bit.band(-1, 255), bit.bxor(5, 1), bit.bnot(0), bit.lshift(1, 31), \
                  bit.rshift(-1, 28), bit.arshift(-8, 1), bit.rol(0x80000000, 1), bit.ror(1, 1), \
                  bit.tobit(0xffffffff), bit.bswap(0x01020304)}";
    let wanted = [
        7,
        255,
        4,
        -1,
        -2_147_483_648,
        15,
        -4,
        1,
        -2_147_483_648,
        -1,
        0x0403_0201,
    ];
    let wanted: String = wanted.iter().map(|n: &i64| format!(":{n}\r\n")).collect();
    assert_eq!(bench.run(source), Ok(format!("*11\r\n{wanted}")));
    assert_eq!(
        bench.run("return bit.tohex(-1) .. bit.tohex(255, 4) .. bit.tohex(255, -2)"),
        Ok(bulk("ffffffff00ffFF"))
    );
    assert!(
        bench
            .error("bit.band('a', 1)")
            .contains("bad argument #1 to 'band' (number expected, got string)")
    );
}

#[test]
fn the_spellings_of_lua_5_1_are_there() {
    let mut bench = Bench::new();
    let cases = [
        ("return table.getn({1,2})", ":2\r\n"),
        ("return math.mod(7, 4)", ":3\r\n"),
        ("return math.pow(2, 3)", ":8\r\n"),
        ("return table.maxn({[3]=1})", ":3\r\n"),
        ("return select('#', unpack({1,2,3}))", ":3\r\n"),
        (
            "local n = 0 for w in string.gfind('a b', '%a') do n = n + 1 end return n",
            ":2\r\n",
        ),
        (
            "local n = 0 table.foreach({1,2}, function() n = n + 1 end) return n",
            ":2\r\n",
        ),
        ("return ('x'):rep(3)", "$3\r\nxxx\r\n"),
        ("return string.find('a.b', '.', 1, true)", ":2\r\n"),
        (
            "return string.format('%d %s %5.1f %x %q', 3.0, 'a', 1.25, 255, 'b')",
            "$16\r\n3 a   1.2 ff \"b\"\r\n",
        ),
        (
            "local t = {3,1,2} table.sort(t) return t",
            "*3\r\n:1\r\n:2\r\n:3\r\n",
        ),
        (
            "return xpcall(function() error('x', 0) end, function(e) return e end) and 1 or 0",
            ":0\r\n",
        ),
    ];
    for (source, reply) in cases {
        assert_eq!(bench.run(source).as_deref(), Ok(reply), "{source}");
    }
}
