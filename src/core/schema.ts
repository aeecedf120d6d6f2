/**
 * The JSON shapes of the wire in TypeBox: what validates requests also documents them. Members keep
 * the names of the interface. Each schema carries an example.
 */
