import { Component, type ComponentType } from 'preact';

/** Renders again only when `same` says that the properties differ. */
export function memo<P extends object>(Inner: ComponentType<P>, same: (a: P, b: P) => boolean): ComponentType<P> {
  return class extends Component<P> {
    shouldComponentUpdate(next: P) {
      return !same(this.props, next);
    }
    render() {
      return <Inner {...this.props} />;
    }
  };
}
