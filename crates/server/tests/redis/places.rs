//! Tests of geographic places (GEO commands) in small and large sorted sets. The replies are from Redis 7.0.15.

use super::client::start;

#[test]
fn places_are_answered_as_redis_does() {
    let running = start();
    running.connect().expect(&[
        ("GEOADD g 13.361389 38.115556 Palermo 15.087269 37.502669 Catania", ":2"),
        ("GEOADD g NX 13.5 38.2 Palermo 13.583333 37.316667 Agrigento", ":1"),
        ("GEOADD g XX CH 13.583334 37.316668 Agrigento 1 1 nowhere", ":0"),
        ("GEOADD g CH 13.583333 37.316667 Agrigento", ":0"),
        ("ZRANGE g 0 -1 WITHSCORES", "[\"Agrigento\", \"3479030013248308\", \"Palermo\", \"3479099956230698\", \"Catania\", \"3479447370796909\"]"),
        ("ZSCORE g Palermo", "\"3479099956230698\""),
        ("GEODIST g Palermo Catania", "\"166274.1516\""),
        ("GEODIST g Palermo Catania KM", "\"166.2742\""),
        ("GEODIST g Palermo Catania mi", "\"103.3182\""),
        ("GEODIST g Palermo Catania ft", "\"545518.8700\""),
        ("GEODIST g Palermo Palermo", "\"0.0000\""),
        ("GEODIST g Palermo nowhere", "nil"),
        ("GEODIST none a b", "nil"),
        ("GEOHASH g Palermo nowhere Catania", "[\"sqc8b49rny0\", nil, \"sqdtr74hyu0\"]"),
        ("GEOHASH none a", "[nil]"),
        ("GEOHASH g", "[]"),
        ("GEOPOS g Palermo nowhere", "[[\"13.36138933897018433\", \"38.11555639549629859\"], nil array]"),
        ("GEOPOS none a b", "[nil array, nil array]"),
        ("GEOPOS g", "[]"),
        ("GEORADIUS g 15 37 200 km", "[\"Agrigento\", \"Palermo\", \"Catania\"]"),
        ("GEORADIUS g 15 37 200 km WITHDIST WITHCOORD WITHHASH", "[[\"Agrigento\", \"130.4235\", :3479030013248308, [\"13.5833314061164856\", \"37.31666804993816555\"]], [\"Palermo\", \"190.4424\", :3479099956230698, [\"13.36138933897018433\", \"38.11555639549629859\"]], [\"Catania\", \"56.4413\", :3479447370796909, [\"15.08726745843887329\", \"37.50266842333162032\"]]]"),
        ("GEORADIUS g 15 37 200 km DESC COUNT 2", "[\"Palermo\", \"Agrigento\"]"),
        ("GEORADIUS g 15 37 200 km COUNT 1", "[\"Catania\"]"),
        ("GEORADIUS g 15 37 200 km COUNT 1 ANY", "[\"Agrigento\"]"),
        ("GEORADIUS g 15 37 1 km", "[]"),
        ("GEORADIUS none 15 37 1 km", "[]"),
        ("GEORADIUS g 15 37 200 km STORE d", ":3"),
        ("ZRANGE d 0 -1 WITHSCORES", "[\"Agrigento\", \"3479030013248308\", \"Palermo\", \"3479099956230698\", \"Catania\", \"3479447370796909\"]"),
        ("GEORADIUS g 15 37 200 km COUNT 2 STOREDIST d", ":2"),
        ("ZRANGE d 0 -1 WITHSCORES", "[\"Catania\", \"56.441257870158204\", \"Agrigento\", \"130.42348706714702\"]"),
        ("GEORADIUS g 15 37 1 km STORE d", ":0"),
        ("EXISTS d", ":0"),
        ("GEORADIUSBYMEMBER g Agrigento 100 km", "[\"Agrigento\", \"Palermo\"]"),
        ("GEORADIUSBYMEMBER g Agrigento 100 km WITHDIST", "[[\"Agrigento\", \"0.0000\"], [\"Palermo\", \"90.9778\"]]"),
        ("GEORADIUSBYMEMBER none a x y", "[]"),
        ("GEORADIUSBYMEMBER_RO g Agrigento 100 km ASC", "[\"Agrigento\", \"Palermo\"]"),
        ("GEORADIUS_RO g 15 37 200 km ASC", "[\"Catania\", \"Agrigento\", \"Palermo\"]"),
        ("GEOSEARCH g FROMLONLAT 15 37 BYRADIUS 200 km ASC", "[\"Catania\", \"Agrigento\", \"Palermo\"]"),
        ("GEOSEARCH g FROMLONLAT 15 37 BYBOX 400 400 km ASC WITHCOORD WITHDIST", "[[\"Catania\", \"56.4413\", [\"15.08726745843887329\", \"37.50266842333162032\"]], [\"Agrigento\", \"130.4235\", [\"13.5833314061164856\", \"37.31666804993816555\"]], [\"Palermo\", \"190.4424\", [\"13.36138933897018433\", \"38.11555639549629859\"]]]"),
        ("GEOSEARCH g FROMMEMBER Palermo BYBOX 1 1 m", "[\"Palermo\"]"),
        ("GEOSEARCH g FROMLONLAT 15 37 BYRADIUS inf km DESC", "[\"Palermo\", \"Agrigento\", \"Catania\"]"),
        ("GEOSEARCH g FROMLONLAT 15 37 BYRADIUS 0 m", "[]"),
        ("GEOSEARCH g FROMMEMBER Palermo BYRADIUS 0 m", "[\"Palermo\"]"),
        ("GEOSEARCH none FROMMEMBER a BYRADIUS 1 m", "[]"),
        ("GEOSEARCHSTORE d g FROMLONLAT 15 37 BYRADIUS 200 km ASC COUNT 2", ":2"),
        ("ZRANGE d 0 -1 WITHSCORES", "[\"Agrigento\", \"3479030013248308\", \"Catania\", \"3479447370796909\"]"),
        ("GEOSEARCHSTORE d g FROMLONLAT 15 37 BYBOX 400 400 km STOREDIST", ":3"),
        ("ZRANGE d 0 -1 WITHSCORES", "[\"Catania\", \"56.441257870158204\", \"Agrigento\", \"130.42348706714702\", \"Palermo\", \"190.44242984775784\"]"),
        ("GEOSEARCHSTORE d none FROMLONLAT 15 37 BYBOX 400 400 km", ":0"),
        ("EXISTS d", ":0"),
        ("GEOADD edge 180 85.05112878 a -180 -85.05112878 b", ":2"),
        ("ZRANGE edge 0 -1 WITHSCORES", "[\"b\", \"0\", \"a\", \"13510798882111488\"]"),
        ("GEOPOS edge a b", "[[\"180\", \"85.0511287799999991\"], [\"-179.99999731779098511\", \"-85.05112751263942528\"]]"),
        ("ZADD odd -1 minus inf inf 1.5 part", ":3"),
        ("GEOPOS odd minus inf part", "[[\"180\", \"85.0511287799999991\"], [\"-179.99999731779098511\", \"-85.05112751263942528\"], [\"-179.99999731779098511\", \"-85.05112497791824921\"]]"),
    ]);
    let mut client = running.connect();
    assert!(client.send("HELLO 3").contains("\"proto\": :3"));
    client.expect(&[
        ("GEOPOS g Palermo nowhere", "[[,13.36138933897018433, ,38.11555639549629859], nil]"),
        ("GEODIST g Palermo Catania", "\"166274.1516\""),
        ("GEODIST g Palermo nowhere", "nil"),
        ("GEOSEARCH g FROMMEMBER Palermo BYRADIUS 1 m WITHCOORD WITHDIST WITHHASH", "[[\"Palermo\", \"0.0000\", :3479099956230698, [,13.36138933897018433, ,38.11555639549629859]]]"),
    ]);
}

#[test]
fn places_have_the_errors_of_redis() {
    let running = start();
    running.connect().expect(&[
        ("SET s x", "+OK"),
        ("GEOADD g 13.361389 38.115556 Palermo", ":1"),
        ("GEOADD s 1 1 a", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("GEODIST s a b", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("GEOHASH s a", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("GEOPOS s a", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("GEORADIUS s 1 1 1 m", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("GEORADIUSBYMEMBER s a 1 m", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("GEOSEARCH s FROMMEMBER a BYRADIUS 1 m", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("GEOSEARCHSTORE g s FROMMEMBER a BYRADIUS 1 m", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("GEOADD g 1 1", "-ERR wrong number of arguments for 'geoadd' command"),
        ("GEOADD g 1 1 a 2", "-ERR syntax error"),
        ("GEOADD g NX XX 1 1 a", "-ERR syntax error"),
        ("GEOADD g CH CH CH", "-ERR syntax error"),
        ("GEOADD g x 1 a", "-ERR value is not a valid float"),
        ("GEOADD g nan 1 a", "-ERR value is not a valid float"),
        ("GEOADD g inf 1 a", "-ERR invalid longitude,latitude pair inf,1.000000"),
        ("GEOADD g 200 100 a", "-ERR invalid longitude,latitude pair 200.000000,100.000000"),
        ("GEOADD g 1 1 a 0 -85.06 b", "-ERR invalid longitude,latitude pair 0.000000,-85.060000"),
        ("EXISTS a", ":0"),
        ("GEODIST g Palermo Palermo ly", "-ERR unsupported unit provided. please use M, KM, FT, MI"),
        ("GEODIST g Palermo Palermo m m", "-ERR syntax error"),
        ("GEORADIUS g x 1 1 m", "-ERR value is not a valid float"),
        ("GEORADIUS g 1 100 1 m", "-ERR invalid longitude,latitude pair 1.000000,100.000000"),
        ("GEORADIUS g 1 1 x m", "-ERR need numeric radius"),
        ("GEORADIUS g 1 1 nan m", "-ERR need numeric radius"),
        ("GEORADIUS g 1 1 -1 m", "-ERR radius cannot be negative"),
        ("GEORADIUS g 1 1 1 ly", "-ERR unsupported unit provided. please use M, KM, FT, MI"),
        ("GEORADIUS g 1 1 1 m FOO", "-ERR syntax error"),
        ("GEORADIUS g 1 1 1 m COUNT", "-ERR syntax error"),
        ("GEORADIUS g 1 1 1 m COUNT 0", "-ERR COUNT must be > 0"),
        ("GEORADIUS g 1 1 1 m COUNT -5", "-ERR COUNT must be > 0"),
        ("GEORADIUS g 1 1 1 m COUNT x", "-ERR value is not an integer or out of range"),
        ("GEORADIUS g 1 1 1 m COUNT 9223372036854775808", "-ERR value is not an integer or out of range"),
        ("GEORADIUS g 1 1 1 m COUNT 9223372036854775807", "[]"),
        ("GEORADIUS g 1 1 1 m ANY", "-ERR the ANY argument requires COUNT argument"),
        ("GEORADIUS g 1 1 1 m STORE d WITHDIST", "-ERR STORE option in GEORADIUS is not compatible with WITHDIST, WITHHASH and WITHCOORD options"),
        ("GEORADIUS g 1 1 1 m STORE", "-ERR syntax error"),
        ("GEORADIUS_RO g 1 1 1 m STORE d", "-ERR syntax error"),
        ("GEORADIUSBYMEMBER g none 1 m", "-ERR could not decode requested zset member"),
        ("GEORADIUSBYMEMBER_RO g Palermo 1 m STOREDIST d", "-ERR syntax error"),
        ("GEOSEARCH g FROMMEMBER none BYRADIUS 1 m", "-ERR could not decode requested zset member"),
        ("GEOSEARCH g FROMMEMBER Palermo ASC ASC DESC", "-ERR exactly one of BYRADIUS and BYBOX can be specified for GEOSEARCH"),
        ("GEOSEARCH g BYRADIUS 1 m ASC ASC", "-ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for GEOSEARCH"),
        ("geosearch g BYRADIUS 1 m ASC ASC", "-ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for geosearch"),
        ("GEOSEARCH g FROMMEMBER Palermo FROMLONLAT 1 1 BYRADIUS 1 m", "-ERR syntax error"),
        ("GEOSEARCH g FROMMEMBER Palermo BYRADIUS 1 m BYBOX 1 1 m", "-ERR syntax error"),
        ("GEOSEARCH g FROMMEMBER Palermo BYBOX x 1 m", "-ERR need numeric width"),
        ("GEOSEARCH g FROMMEMBER Palermo BYBOX 1 x m", "-ERR need numeric height"),
        ("GEOSEARCH g FROMMEMBER Palermo BYBOX -1 1 m", "-ERR height or width cannot be negative"),
        ("GEOSEARCH g FROMMEMBER Palermo BYBOX 1 1 ly", "-ERR unsupported unit provided. please use M, KM, FT, MI"),
        ("GEOSEARCH g FROMMEMBER Palermo BYRADIUS 1 m STOREDIST", "-ERR syntax error"),
        ("GEOSEARCH g FROMMEMBER Palermo BYRADIUS 1 m STORE d", "-ERR syntax error"),
        ("GEOSEARCHSTORE d g FROMMEMBER Palermo BYRADIUS 1 m WITHCOORD", "-ERR GEOSEARCHSTORE is not compatible with WITHDIST, WITHHASH and WITHCOORD options"),
        ("GEOSEARCHSTORE d g FROMMEMBER Palermo BYRADIUS 1 m STORE d", "-ERR syntax error"),
        ("GEOADD g", "-ERR wrong number of arguments for 'geoadd' command"),
        ("GEORADIUS g 1 1 1", "-ERR wrong number of arguments for 'georadius' command"),
    ]);
}

/// Many members have equal distances, so the distances alone do not decide the order of a reply. The order must not
/// depend on the size of the set.
#[test]
fn a_large_set_of_places_answers_as_a_small_one() {
    let running = start();
    let mut client = running.connect();
    for n in 0..100 {
        let (east, north) = (n % 5, n / 5 % 4);
        let reply = client.send(&format!("GEOADD g 10.00{east} 10.00{north} m{n}"));
        assert_eq!(reply, ":1");
    }
    let searches = [
        "BYRADIUS 300 m",
        "BYRADIUS 300 m ASC WITHDIST",
        "BYRADIUS 300 m DESC COUNT 50 WITHHASH",
        "BYRADIUS 300 m COUNT 30 WITHCOORD",
        "BYRADIUS 300 m COUNT 7 ANY",
        "BYBOX 200 700 m ASC COUNT 11",
        "BYBOX 200 700 m DESC COUNT 3 ANY",
    ];
    let searches = searches.map(|form| format!("GEOSEARCH g FROMLONLAT 10.002 10.002 {form}"));
    assert_eq!(client.send("OBJECT ENCODING g"), "\"listpack\"");
    let small = searches.clone().map(|search| client.send(&search));
    for n in 0..200 {
        let reply = client.send(&format!("GEOADD g 20.{n} 20 far{n}"));
        assert_eq!(reply, ":1");
    }
    assert_eq!(client.send("OBJECT ENCODING g"), "\"skiplist\"");
    let large = searches.clone().map(|search| client.send(&search));
    for ((small, large), search) in small.iter().zip(&large).zip(&searches) {
        assert!(small.contains("m2"), "{search}: {small}");
        assert_eq!(small, large, "{search}");
    }
}
