/** Text files that the executable embeds. */
declare module "*/release-keys.txt" {
  const text: string;
  export default text;
}
declare module "*.service" {
  const text: string;
  export default text;
}
declare module "*/Caddyfile" {
  const text: string;
  export default text;
}
