/** Text files that the executable embeds. */
declare module "*.service" {
  const text: string;
  export default text;
}
declare module "*/Caddyfile" {
  const text: string;
  export default text;
}
