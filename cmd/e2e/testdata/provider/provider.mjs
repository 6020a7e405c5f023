// An identity provider for tests: node provider.mjs LIBRARY RESOURCE SECONDS
//
// It gives out access tokens for one resource, good for some seconds, and refresh tokens that are good
// once: one that comes again ends the whole login. It prints its issuer, and then a line for each event.
import http from "node:http";

const [library, resource, seconds] = process.argv.slice(2);
const { default: Provider, errors } = await import(library);

const server = http.createServer();
server.listen(0, "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [{ // the resource server, which asks about tokens, and a machine
      client_id: "resource", client_secret: "resource-secret",
      redirect_uris: [], response_types: [], grant_types: ["client_credentials"],
    }],
    scopes: ["openid", "offline_access", "read"],
    rotateRefreshToken: true,
    pkce: { required: () => true },
    cookies: { keys: ["test"] },
    findAccount: (_ctx, sub) => ({ accountId: sub, claims: () => ({ sub }) }),
    features: {
      registration: { enabled: true },
      revocation: { enabled: true },
      deviceFlow: { enabled: true },
      clientCredentials: { enabled: true },
      introspection: { enabled: true, allowedPolicy: () => true },
      resourceIndicators: {
        enabled: true,
        useGrantedResource: () => true,
        getResourceServerInfo: (_ctx, wanted) => {
          if (wanted !== resource) throw new errors.InvalidTarget();
          return { scope: "read", audience: resource, accessTokenTTL: Number(seconds), accessTokenFormat: "opaque" };
        },
      },
    },
  });
  const say = (...words) => process.stdout.write(words.join(" ") + "\n");
  provider.on("registration_create.success", () => say("registered"));
  provider.on("grant.success", (ctx) => say("granted", ctx.oidc.params.grant_type));
  provider.on("grant.error", (_ctx, err) => say("refused", err.error, err.error_detail));
  provider.on("grant.revoked", () => say("revoked"));
  provider.on("authorization.error", (_ctx, err) => say("refused", err.message, err.error_description));
  provider.on("server_error", (_ctx, err) => say("broken", err.stack));
  server.on("request", provider.callback());
  say(issuer);
});
